"""Another release of Paceline in processes of its own, and what it leaves in the database."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

import paceline


def make_next_release(folder: Path) -> Path:
    """A folder with a release that changed nothing but a function."""
    package = shutil.copytree(
        Path(paceline.__file__).parent, folder / "paceline", ignore=shutil.ignore_patterns("__pycache__")
    )
    with (package / "stores/postgres/sql/warm.sql").open("a") as file:
        file.write("\ncreate function paceline.news() returns text language sql as $$ select 'next' $$;\n")
    return folder


def wipe(sql: psycopg.Connection[Any], schema: str) -> None:
    every = sql.execute("select nspname from pg_namespace where nspname ~ %s", (f"^{schema}(_f_.*)?$",)).fetchall()
    for (name,) in every:
        sql.execute(f"drop schema {name} cascade")


def environment(folder: Path | None) -> dict[str, str]:
    return os.environ | ({} if folder is None else {"PYTHONPATH": str(folder)})


def start(folder: Path | None, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(folder), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def migrate(folder: Path | None, *words: str) -> subprocess.Popen[str]:
    return start(folder, "-m", "paceline", "migrate", *words)


def migrate_now(folder: Path | None, *words: str) -> str:
    """What the command says; it must succeed."""
    done = migrate(folder, *words)
    said, errors = done.communicate(timeout=60)
    assert done.returncode == 0, errors
    return said


def installed(sql: psycopg.Connection[Any], schema: str) -> list[str]:
    return [name for (name,) in sql.execute(f"select fingerprint from {schema}.installed order by 1").fetchall()]
