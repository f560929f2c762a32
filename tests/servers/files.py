"""SQLite files with our tables and nothing else: making those takes longer than most tests; tests/sqlite tries it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from paceline.stores.sqlite import schema
from paceline.stores.sqlite.connect import connect


def new_file(path: Path) -> Path:
    """Makes a file in which no store has ever been."""
    path.write_bytes(_tables())
    return path


@cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        db = connect(path, "normal")
        db.execute("BEGIN IMMEDIATE")
        schema.prepare(db, path)
        db.execute("COMMIT")
        db.close()
        return path.read_bytes()
