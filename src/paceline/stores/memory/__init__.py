"""The memory store: the reference."""
