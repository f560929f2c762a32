"""A file that an earlier release wrote, and the history that it was written by."""
