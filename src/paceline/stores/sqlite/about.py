"""What the file and the library behind it say of themselves."""

from __future__ import annotations

import sqlite3

from paceline.stores.address import version_numbers
from paceline.stores.interface import About
from paceline.stores.sqlite.schema import VERSION
from paceline.stores.sqlite.unit import Unit

LOG_RESET_FIXED = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
"""Before these, two who fold the log while a third writes can, very rarely, damage the file: SQLite's WAL-reset bug."""


def about(unit: Unit) -> About:
    """The library's version, the file's settings and size."""
    db = unit.db
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
    if has_log_reset_fault(version_numbers(sqlite3.sqlite_version)):
        warnings.append(
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3, 3.50.7 and 3.44.6): Paceline "
            "folds the log in a way that does not meet it; if connections of your own write to this file, give them "
            '"PRAGMA wal_autocheckpoint = 0", or use a Python with a newer SQLite'
        )
    return About(f"SQLite {sqlite3.sqlite_version}", facts, tuple(warnings))


def has_log_reset_fault(version: tuple[int, ...]) -> bool:
    """True for versions before the repair, and for those of older series that did not get it."""
    repaired = any(version[:2] == fixed[:2] and version >= fixed for fixed in LOG_RESET_FIXED)
    return version < LOG_RESET_FIXED[-1] and not repaired
