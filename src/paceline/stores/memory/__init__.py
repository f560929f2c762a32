"""The memory store: the reference; each file is one step of a job."""
