"""The steps of a job's life, decided in Python: what the memory and the SQLite store share. Each file is one step."""
