"""Enqueue inside a transaction of the caller: the job is there if and only if the caller commits."""

from __future__ import annotations

import contextlib
import inspect
import os
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.errors import ConfigError
from paceline.stores.sqlite.connect import translating
from paceline.stores.sqlite.prepare import is_prepared, prepare
from paceline.stores.sqlite.unit import Unit
from paceline.stores.steps.sleepers import Sleepers
from paceline.text import show

if TYPE_CHECKING:
    from paceline.stores.sqlite.store import SqliteStore


T = TypeVar("T")


class Cursors:
    """The caller's connection, without its row factory."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    @property
    def total_changes(self) -> int:
        return int(self._connection.total_changes)

    def execute(self, sql: str, values: Any = ()) -> Any:
        return self._cursor().execute(sql, values)

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._cursor().executemany(sql, rows)

    def _cursor(self) -> Any:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor


def do_within(store: SqliteStore, within: Any, step: Callable[..., T], *args: Any) -> T:
    """Do a step with the caller's connection, in its transaction; one is begun if there is none."""
    connection = _driver_connection(within)
    _check(store, connection)
    # Outside of atomic() Django commits every statement by itself, and never what somebody else has begun.
    commits = getattr(within, "in_atomic_block", None) is False and within.autocommit and not connection.in_transaction
    db = Cursors(connection)
    factory, connection.text_factory = connection.text_factory, str
    try:
        with translating(store.path):
            result = _in_savepoint(store, db, step, *args)
            if commits and db.in_transaction:
                db.execute("COMMIT")
            return result
    finally:
        connection.text_factory = factory


def _in_savepoint(store: SqliteStore, db: Cursors, step: Callable[..., T], *args: Any) -> T:
    unit = Unit(store.clock, store.namespace, Sleepers(), store.least_guard)
    began = not db.in_transaction
    if began:
        db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("SAVEPOINT paceline")
        _prepare(store, db)
        unit.begin(db)
        result = unit.run(step, *args)
        changed = unit.end()
        db.execute("RELEASE paceline")
        if began and not changed:
            db.execute("ROLLBACK")  # nothing to keep: the caller need not end what he did not begin
    except BaseException:
        # What the caller did before stays his; what was begun for him ends. A full disk has undone both already.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK TO paceline")
            db.execute("RELEASE paceline")
        if began and db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _prepare(store: SqliteStore, db: Cursors) -> None:
    """Make what is missing with the caller's connection: another one would wait for his transaction.

    Nothing is noted: if he rolls back, it is missing again.
    """
    needs = (db, store.path, store.clock, store.namespace)
    if not store.is_connected and not is_prepared(*needs):
        prepare(*needs)


def _driver_connection(within: Any) -> Any:
    """The sqlite3 connection in what a caller has: its own, SQLAlchemy's connection or session, or Django's."""
    if isinstance(within, sqlite3.Connection):
        return within
    found = within
    inner = getattr(found, "connection", None)
    if callable(inner) and not isinstance(inner, sqlite3.Connection):
        found = found.connection()  # an SQLAlchemy session
    if callable(getattr(found, "in_transaction", None)) and hasattr(found, "begin") and not found.in_transaction():
        found.begin()  # an SQLAlchemy connection commits only what it knows to have begun
    for _ in range(3):
        if isinstance(found, sqlite3.Connection):
            return found
        found = getattr(found, "driver_connection", None) or getattr(found, "connection", None)
    return within


def _check(store: SqliteStore, connection: Any) -> None:
    try:
        usable = all(hasattr(connection, name) for name in ("cursor", "commit", "in_transaction"))
        if not usable or inspect.iscoroutinefunction(connection.commit):
            expected = "an sqlite3 connection, an SQLAlchemy connection or session on it, or Django's connection"
            raise _wrong(connection, f"expected {expected}, to {store.path}")
        found = Cursors(connection).execute("PRAGMA database_list").fetchall()
    except sqlite3.Error as error:
        raise _wrong(connection, f"it cannot be used here ({error})") from error
    files = [os.fsdecode(row[2]) for row in found if row[1] in ("main", b"main")]
    if not files or not files[0] or not store.path.exists() or not store.path.samefile(files[0]):
        raise _wrong(connection, f"it is open on {files[0] or 'memory'!r}, but the jobs are in {store.path}")


def _wrong(connection: Any, why: str) -> ConfigError:
    return ConfigError(f"within={show(connection)} is wrong: {why}", option="within", value=connection)
