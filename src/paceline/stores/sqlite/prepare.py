"""What a namespace needs before its first step: the tables, the anchor of the clock, a row of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.clock import Clock
from paceline.stores.sqlite import schema
from paceline.stores.sqlite.clock import BootClock, anchor, is_anchored
from paceline.stores.sqlite.statements import statements

SPACE = statements("space")


def is_prepared(db: Any, path: Path, clock: Clock, namespace: str) -> bool:
    """True when all is there and nothing has to be written; a clock of the machine goes by the file's anchor then."""
    if schema.version_of(db, path) != schema.VERSION:
        return False
    if isinstance(clock, BootClock) and not is_anchored(db, clock):
        return False
    return db.execute(SPACE["find"], (namespace,)).fetchone() is not None


def prepare(db: Any, path: Path, clock: Clock, namespace: str) -> None:
    """Make what is missing, in the transaction that is open: it is there when that is committed."""
    schema.prepare(db, path)
    if isinstance(clock, BootClock):
        anchor(db, clock)
    db.execute(SPACE["create"], (namespace,))
