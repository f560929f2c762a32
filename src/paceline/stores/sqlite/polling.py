"""Looking whether a file has changed, or is another one, when no notification came."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from paceline.stores.sqlite.connect import connect
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.writer import GONE, identity

SPACE = statements("space")


class Found(NamedTuple):
    """What a look at the file found."""

    notified: int
    """The number of the latest notification."""
    changed: bool
    """True when anything was written since the last look."""
    listed: bool
    """False when those who write do not know the socket any more."""
    replaced: bool
    """True when the path leads to another file since the last look."""


class Look:
    """A connection that only looks whether the file has changed, or is another one."""

    def __init__(self, path: Path, known: tuple[int, int] | None) -> None:
        self._path = path
        self._identity = known
        self._db: Any = None
        self._version = -1
        self._notified = 0
        self._stamps: tuple[Any, ...] = ()
        self._changed = True

    def _may_have_changed(self) -> bool:
        """False when the file and its log have the times they had: nothing is read then.

        Times are coarse: a write right after a look may leave them as they were, so the next look is a real one too.
        """
        stamps = tuple(_stamp(name) for name in (self._path, f"{self._path}-wal"))
        before, self._changed = self._changed, stamps != self._stamps
        self._stamps = stamps
        return before or self._changed

    def found(self, space: int, address: str) -> Found:
        """Look at the file, on behalf of whoever listens at this address; none: nobody does."""
        if not self._may_have_changed():
            return Found(self._notified, False, True, False)
        now = identity(self._path)
        replaced = self._identity is not None and now is not None and now != self._identity
        changed, listed = False, True
        if replaced or now is None:
            self.close()
        if now is None and self._identity is not None:
            # The next file may have the number of the one that was deleted.
            self._identity = GONE
        try:
            if self._db is None and now is not None:
                self._db = connect(self._path, "normal")
                self._version, self._notified, self._identity = -1, 0, now
            if self._db is not None:
                (version,) = self._db.execute("PRAGMA data_version").fetchone()
                if version != self._version:
                    row = self._db.execute(SPACE["notified"], (address, space)).fetchone()
                    self._notified, known = row or (0, True)
                    self._version, changed, listed = version, True, bool(known) or not address
        except sqlite3.Error:
            # The next look tries again; whoever needs the file is told what is wrong with it.
            self.close()
        return Found(self._notified, changed, listed, replaced)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _stamp(path: Path | str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
