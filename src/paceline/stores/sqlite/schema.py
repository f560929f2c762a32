"""The tables of a file: created at first use, upgraded in place, refused when they are newer or not ours."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from paceline.clock import since_boot
from paceline.errors import SchemaMismatch
from paceline.stores.sqlite.clock import boot_id
from paceline.stores.sqlite.statements import text

VERSION = 4
UPGRADES = {1: "upgrade_1", 2: "upgrade_2", 3: "upgrade_3"}
"""From each older version, the file in `sql/` that leads to the next one."""
OURS = 0x50414345  # "PACE", the application id of files that hold nothing else


def version_of(db: Any, path: Path) -> int:
    """The version of our tables, 0 when there are none; `SchemaMismatch` when the file is not for us."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    if "paceline_file" not in tables:
        if owner not in (0, OURS) or any(name.startswith("paceline_") for name in tables):
            raise SchemaMismatch(f"{path} belongs to another program: give another path; nothing was changed")
        return 0
    columns = {row[1] for row in db.execute("PRAGMA table_info(paceline_file)").fetchall()}
    found = None
    if columns >= {"id", "version", "boot", "clock", "ids"}:
        found = db.execute("SELECT version FROM paceline_file WHERE id = 1").fetchone()
    if found is None or not isinstance(found[0], int) or found[0] < 1:
        raise SchemaMismatch(
            f"{path} has a table paceline_file that is not Paceline's: give another path; nothing was changed"
        )
    version: int = found[0]
    if version > VERSION:
        raise newer(path, version)
    return version


def newer(path: Path | str, version: int) -> SchemaMismatch:
    """What a program says to a file of a later release."""
    return SchemaMismatch(
        f"{path} was written by a newer Paceline (schema {version}, this one knows {VERSION}): "
        "upgrade Paceline here; nothing was changed"
    )


def prepare(db: Any, path: Path) -> None:
    """Create or upgrade the tables, inside the transaction that the caller has begun."""
    version = version_of(db, path)
    if version == 0:
        _create(db)
    for old in range(version or VERSION, VERSION):
        _run(db, text(UPGRADES[old]))
    if 0 < version < VERSION:
        db.execute("UPDATE paceline_file SET version = ?", (VERSION,))


def _create(db: Any) -> None:
    (others,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    _run(db, text("schema"))
    offset = time.time_ns() // 1000 - since_boot()
    db.execute("INSERT INTO paceline_file (id, version, boot, clock) VALUES (1, ?, ?, ?)", (VERSION, boot_id(), offset))
    if not others:
        db.execute(f"PRAGMA application_id = {OURS}")


def _run(db: Any, script: str) -> None:
    """Statement by statement: `executescript` would commit what the caller has begun."""
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    for statement in "\n".join(lines).split(";\n"):
        if statement.strip(" \n;"):
            db.execute(statement)
