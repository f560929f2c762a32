"""What the file and the library behind it say of themselves."""

from __future__ import annotations

from paceline.stores.address import version_numbers
from paceline.stores.interface import About
from paceline.stores.sqlite.connect import sqlite3
from paceline.stores.sqlite.schema import VERSION
from paceline.stores.sqlite.state import SqliteState

LOG_RESET_FIXED = (3, 51, 3)
"""Before this version two processes that fold the log at once can, very rarely, damage the file; ours never do."""


def about(state: SqliteState) -> About:
    """The library's version, the file's settings and size."""
    db = state.db
    pages, size, journal, synchronous = (
        db.execute(f"pragma {name}").fetchone()[0]
        for name in ("page_count", "page_size", "journal_mode", "synchronous")
    )
    facts = {
        "size": f"{pages * size / 1e6:.1f} MB",
        "journal": str(journal),
        "durability": "full" if synchronous >= 2 else "normal",
        "schema": str(VERSION),
    }
    warnings = []
    if version_numbers(sqlite3.sqlite_version) < LOG_RESET_FIXED:
        warnings.append(
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3): Paceline folds the log in "
            "a way that does not meet it, other programs that write to this file might; "
            "pip install 'paceline[sqlite]' brings a newer library"
        )
    return About(f"SQLite {sqlite3.sqlite_version}", facts, tuple(warnings))
