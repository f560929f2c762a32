"""Enqueue inside a transaction of the caller: the job is there if and only if the caller commits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.errors import ConfigError
from paceline.stores.sqlite.connect import in_words, sqlite3
from paceline.stores.sqlite.state import SqliteState
from paceline.stores.steps.sleepers import Sleepers

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

    def execute(self, sql: str, values: Any = ()) -> Any:
        return self._cursor().execute(sql, values)

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._cursor().executemany(sql, rows)

    def _cursor(self) -> Any:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor


def do_within(store: SqliteStore, connection: Any, step: Callable[..., T], *args: Any) -> T:
    """Do a step with the caller's connection, in its transaction; one is begun if there is none."""
    _check(store, connection)
    db = Cursors(connection)
    factory, connection.text_factory = connection.text_factory, str
    try:
        with in_words(store.path):
            return _in_savepoint(db, SqliteState(store.clock, store.namespace, Sleepers()), step, *args)
    finally:
        connection.text_factory = factory


def _in_savepoint(db: Cursors, state: SqliteState, step: Callable[..., T], *args: Any) -> T:
    began = not db.in_transaction
    if began:
        db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("SAVEPOINT paceline")
        state.begin(db)  # type: ignore[arg-type]
        result = step(state, *args)
        if state.changed():
            state.end()
        db.execute("RELEASE paceline")
    except BaseException:
        # What the caller did before stays his; what was begun for him ends. A full disk has undone both already.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK TO paceline")
            db.execute("RELEASE paceline")
        if began and db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _check(store: SqliteStore, connection: Any) -> None:
    try:
        if not all(hasattr(connection, name) for name in ("cursor", "commit", "in_transaction")):
            raise _wrong(connection, f"expected an sqlite3 connection to {store.path}")
        found = Cursors(connection).execute("PRAGMA database_list").fetchall()
    except sqlite3.Error as error:
        raise _wrong(connection, f"it cannot be used here ({error})") from error
    files = [os.fsdecode(row[2]) for row in found if row[1] in ("main", b"main")]
    if not files or not files[0] or not store.path.exists() or not store.path.samefile(files[0]):
        raise _wrong(connection, f"it is open on {files[0] or 'memory'!r}, but the jobs are in {store.path}")


def _wrong(connection: Any, why: str) -> ConfigError:
    return ConfigError(f"within={connection!r} is wrong: {why}", option="within", value=connection)
