"""An empty PostgreSQL store for every test, on one server for the whole run."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache
from typing import Any

import psycopg

from paceline.stores import open_store
from paceline.stores.interface import Store
from paceline.stores.postgres import schema

from .postgres import Server


@cache
def server() -> Server:
    """The server of this test process, started with its first use."""
    running = Server().__enter__()
    atexit.register(running.__exit__)
    return running


@cache
def database() -> psycopg.Connection[Any]:
    """A connection to the database with our schema in it, made once."""
    connection = psycopg.connect(server().url(), autocommit=True)
    atexit.register(connection.close)
    connection.execute(schema.script("paceline"))
    return connection


@cache
def wipe_text() -> str:
    tables = database().execute(
        "select c.relname from pg_class c where c.relnamespace = 'paceline'::regnamespace and c.relkind = 'r' "
        "and c.relname <> 'version'"
    )
    deletes = "; ".join(f"delete from paceline.{name}" for (name,) in tables.fetchall())
    names = ("fence", "job_seq", "lane_id", "filing")
    return f"{deletes}; " + "; ".join(f"select setval('paceline.{name}', 1, false)" for name in names)


def fresh_postgres(clock: Any, **options: Any) -> Callable[[str], Store]:
    """Empties the database; gives an opener of handles on it, by namespace."""
    database().execute(wipe_text())
    url = server().url()
    return lambda namespace: open_store(url, namespace=namespace, clock=clock, migrate=False, **options)


def empty_postgres() -> str:
    """Empties the database; gives the URL under which any process finds it."""
    database().execute(wipe_text())
    return server().url()
