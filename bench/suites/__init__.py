"""One file per suite: what is measured (`cases`), how (`measure`, in its own process), how it is told (`tables`)."""

SUITES = (
    "ceilings",
    "speed",
    "latency",
    "shared",
    "binding",
    "quiet",
    "flat",
    "held",
    "size",
    "resources",
    "limiters",
    "imports",
)
"""In the order they run and are told."""
