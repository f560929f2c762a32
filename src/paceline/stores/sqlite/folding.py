"""Folding a long write-ahead log into the file: one process at a time, with the writer's lock."""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

from paceline.clock import Micros
from paceline.stores.sqlite.connect import Database, is_busy
from paceline.stores.sqlite.statements import statements

log = logging.getLogger("paceline.sqlite")

LOG_PAGES = 8192
"""The write-ahead log is folded into the file when it is longer than this: 32 MiB."""
FOLDING = 10_000_000
"""Microseconds in which nobody else tries to fold."""
FOLD_WAIT = 500
"""Milliseconds to wait for those who read: a long reader must not hold up the writer."""
SPACE = statements("space")


def log_is_long(path: Path) -> bool:
    """True when it is time to fold."""
    try:
        return os.stat(f"{path}-wal").st_size >= LOG_PAGES * 4096
    except OSError:
        return False


def fold(db: Database, path: Path, now: Micros) -> None:
    """Fold the log, unless another process does."""
    try:
        mine = db.execute(SPACE["start_folding"], (now + FOLDING, now)).rowcount
        if mine:
            db.execute(f"PRAGMA busy_timeout = {FOLD_WAIT}").fetchall()
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                log.info("the write-ahead log of %s could not be folded yet: somebody reads", path)
            else:
                db.execute("UPDATE paceline_file SET folding_until = 0")
    except sqlite3.Error as error:
        if not is_busy(error):
            log.warning("the write-ahead log of %s could not be folded: %s", path, error)
    finally:
        db.execute("PRAGMA busy_timeout = 0").fetchall()
