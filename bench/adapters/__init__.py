"""One file per system that is measured; all of them look the same to the suites."""
