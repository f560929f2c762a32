"""Databases as earlier releases left them, kept as SQL, and how they were made."""
