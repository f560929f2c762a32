"""One file per suite: what is measured (`cases`), how (`measure`, in its own process), how it is told (`tables`)."""
