"""Enqueue inside a transaction of the caller: the job is there if and only if the caller commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.errors import ConfigError
from paceline.stores.sqlite.connect import in_words
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
    state = SqliteState(store.clock, store.namespace, Sleepers())
    with in_words(store.path):
        began = not connection.in_transaction
        if began:
            db.execute("BEGIN IMMEDIATE")
        db.execute("SAVEPOINT paceline")
        try:
            state.begin(db)  # type: ignore[arg-type]
            result = step(state, *args)
            if state.changed():
                state.end()
        except BaseException:
            # What the caller did before stays his; what was begun for him ends.
            db.execute("ROLLBACK TO paceline")
            db.execute("RELEASE paceline")
            if began:
                connection.rollback()
            raise
        db.execute("RELEASE paceline")
    return result


def _check(store: SqliteStore, connection: Any) -> None:
    if not all(hasattr(connection, name) for name in ("cursor", "commit", "in_transaction")):
        raise ConfigError(
            f"within={connection!r} is wrong: expected an sqlite3 connection to {store.path}",
            option="within",
            value=connection,
        )
    files = [row[2] for row in Cursors(connection).execute("PRAGMA database_list").fetchall() if row[1] == "main"]
    if not files or not files[0] or not store.path.exists() or not store.path.samefile(files[0]):
        raise ConfigError(
            f"within={connection!r} is wrong: it is open on {files[0] or 'memory'!r}, but the jobs are in {store.path}",
            option="within",
            value=connection,
        )
