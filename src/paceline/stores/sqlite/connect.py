"""Opening a file: where it is, which SQLite, which settings; and what its errors mean in words."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from paceline.errors import ConfigError, PacelineError, StoreError, StoreUnavailable

log = logging.getLogger("paceline.sqlite")

OLDEST = (3, 38, 0)
"""Strict tables came with 3.37; with 3.38 every build has the functions for JSON."""
DURABILITY = {"full": "FULL", "normal": "NORMAL"}
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"})
"""File systems of which write-ahead logs must not be shared between machines."""


class Database(Protocol):
    """A connection as the store uses it: its own, or one of a caller."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Any = (), /) -> Any: ...

    def executemany(self, sql: str, rows: Any, /) -> Any: ...


def path_of(url: str) -> Path:
    """`sqlite:///jobs.db` (relative), `sqlite:////var/jobs.db` (absolute)."""
    path = unquote(url.removeprefix("sqlite:///"))
    if not url.startswith("sqlite:///") or not path or path.endswith("/") or ":memory:" in path:
        raise ConfigError(
            f"url={url!r} is wrong: expected sqlite:///jobs.db (relative) or sqlite:////var/jobs.db (absolute); "
            "without a file there is memory://",
            option="url",
            value=url,
        )
    # Absolute from the start: a program that changes its folder keeps its file.
    return Path(path).absolute()


def connect(path: Path, durability: str, check: Callable[[Any], object] | None = None) -> Any:
    """A connection that waits for nobody by itself and begins nothing by itself; `check` looks before it changes."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise StoreError(
            f"this Python is linked with SQLite {sqlite3.sqlite_version}, and sqlite:/// needs "
            f"{'.'.join(map(str, OLDEST))} or newer: use a Python that brings a newer one (python.org, uv, conda, "
            "Docker's python images), or postgresql://, redis:// or memory://"
        )
    if path.exists() and not os.access(path, os.W_OK):
        # Not even opened: SQLite would leave files beside it that nobody may write later.
        raise StoreUnavailable(_why_not_opened(path) if not os.access(path, os.R_OK) else _read_only(path))
    db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        if check is not None:
            check(db)
        settings = ("journal_mode = WAL", f"synchronous = {DURABILITY[durability]}", "wal_autocheckpoint = 0")
        for setting in (*settings, "temp_store = MEMORY", "trusted_schema = OFF", "mmap_size = 0"):
            db.execute(f"PRAGMA {setting}").fetchall()
        db.execute("PRAGMA journal_size_limit = 67108864").fetchall()
    except BaseException:
        db.close()
        raise
    return db


def warn_of_network(path: Path) -> None:
    """Locks and shared memory do not work between machines: say so once, before something is lost."""
    kind = file_system(path.absolute().parent)
    if kind in NETWORK:
        log.warning(
            "%s is on a network file system (%s): SQLite's locks and write-ahead log do not work between machines "
            "and may damage the file; keep it on a local disk, or use PostgreSQL or Redis",
            path,
            kind,
        )


def is_open(path: Path) -> bool:
    """True when this process has a descriptor of the file, whoever opened it."""
    try:
        wanted = os.stat(path)
        numbers = os.listdir("/dev/fd")
    except OSError:
        return False
    for number in numbers:
        try:
            if os.path.samestat(os.fstat(int(number)), wanted):
                return True
        except OSError:
            continue  # the descriptor of the list itself
    return False


def warn_of_fork(path: Path) -> None:
    """SQLite believes in a child that it has the locks of its parent's connections: say so before jobs are lost."""
    log.warning(
        "%s was open when this process was forked: SQLite's locks do not protect it here, and what is written may be "
        "lost when the parent closes its connection; close your own connections to the file before you fork, or start "
        'processes with "spawn"',
        path,
    )


def file_system(folder: Path, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system a folder is on; '' where nobody can say."""
    best, kind = "", ""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
        where = os.path.realpath(folder)
    except OSError:
        return ""
    for line in lines:
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def is_busy(error: BaseException) -> bool:
    """True when another process has the file for a moment."""
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text)


def passes(error: BaseException) -> bool:
    """True when the connection is as good as before: others write, or the disk is full."""
    return is_busy(error) or "full" in str(error)


@contextmanager
def translating(path: Path) -> Iterator[None]:
    """Errors of SQLite as errors that say what to do."""
    try:
        yield
    except PacelineError:
        raise
    except sqlite3.Error as error:
        raise translated(path, error) from error


def translated(path: Path, error: BaseException) -> StoreError:
    """What an error of SQLite means."""
    text = str(error)
    if is_busy(error):
        return StoreUnavailable(
            f"{path} is locked by another program for too long, or by a transaction of this one that has not ended "
            f"({text}); nothing was changed. Inside a transaction of your own add jobs with within= its connection"
        )
    if "unable to open" in text:
        return StoreUnavailable(_why_not_opened(path))
    if "readonly" in text:
        return StoreUnavailable(_read_only(path))
    if "full" in text:
        return StoreUnavailable(f"the disk of {path} is full: nothing was changed; free some space and try again")
    if "not a database" in text:
        return StoreError(f"{path} is no SQLite database: give another path; nothing was changed")
    if "malformed" in text or "corrupt" in text:
        return StoreError(
            f"{path} is damaged ({text}): stop the workers, keep a copy, and restore a backup "
            f'or rescue what is left with: sqlite3 {path} ".recover"'
        )
    if "disk I/O" in text:
        return StoreUnavailable(f"{path} cannot be read or written ({text}): look at the disk; nothing was changed")
    return StoreError(f"{path}: {text}")


def _read_only(path: Path) -> str:
    return (
        f"{path} cannot be written: the file, its folder or its -wal file is read-only for this user; "
        "nothing was changed"
    )


def _why_not_opened(path: Path) -> str:
    folder = path.absolute().parent
    if not folder.exists():
        return f"{path} cannot be opened: the folder {folder} does not exist; create it first"
    if path.is_dir():
        return f"{path} cannot be opened: it is a folder, and a file is needed"
    return f"{path} cannot be opened: this user may not read or create it"
