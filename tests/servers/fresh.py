"""An empty PostgreSQL store for every test, on one server for the whole run."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from paceline.stores import open_store
from paceline.stores.interface import Store
from paceline.stores.postgres import schema
from paceline.stores.postgres.names import Names

from .postgres import Server
from .reused import reusing

NAMES = Names("paceline")


@cache
def server() -> Server | Lent:
    """The server of this test process, started with its first use, unless somebody lends one."""
    if "PACELINE_TEST_POSTGRES" in os.environ:
        return Lent(*os.environ["PACELINE_TEST_POSTGRES"].split(" "))
    running = Server().__enter__()
    atexit.register(running.__exit__)
    return running


class Lent:
    """An empty database on a server that somebody else started: many short runs share one server."""

    def __init__(self, folder: str, database: str) -> None:
        self.folder = Path(folder)
        self.database = database

    def url(self, database: str | None = None, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database or self.database}?host={self.folder}"


class Translating(psycopg.Connection[Any]):
    """Tests write `paceline.NAME` as the store does, wherever a function lives."""

    def execute(self, query: Any, *values: Any, **options: Any) -> psycopg.Cursor[Any]:
        return super().execute(NAMES.text(query) if isinstance(query, str) else query, *values, **options)


@cache
def database() -> psycopg.Connection[Any]:
    """A connection to the database with our schema in it, made once."""
    connection = Translating.connect(server().url(), autocommit=True)
    atexit.register(connection.close)
    found = connection.execute("select to_regnamespace(%s)", (NAMES.functions,)).fetchone()
    if found == (None,):  # a test that opened a store on this server may have made it
        connection.execute(schema.script("paceline"))
    return connection


@cache
def wipe_text() -> str:
    tables = database().execute(
        "select c.relname from pg_class c where c.relnamespace = 'paceline'::regnamespace and c.relkind = 'r' "
        "and c.relname not in ('version', 'installed')"
    )
    deletes = "; ".join(f"delete from paceline.{name}" for (name,) in tables.fetchall())
    names = ("fence", "job_seq", "lane_id", "filing")
    return f"{deletes}; " + "; ".join(f"select setval('paceline.{name}', 1, false)" for name in names)


def fresh_postgres(clock: Any, **options: Any) -> Callable[[str], Store]:
    """Empties the database; gives an opener of handles on it, by namespace."""
    database().execute(wipe_text())
    url = server().url()
    return lambda namespace: reusing(open_store(url, namespace=namespace, clock=clock, migrate=False, **options))


def empty_postgres() -> str:
    """Empties the database; gives the URL under which any process finds it."""
    database().execute(wipe_text())
    return server().url()
