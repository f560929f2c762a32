"""Transactional enqueue: the same statement on the caller's own connection, seen if and only if the caller commits."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.raw_cursor import AsyncRawCursor, RawCursor
from psycopg.rows import tuple_row

from paceline.errors import ConfigError
from paceline.stores.postgres.faults import as_ours
from paceline.text import show

OTHER_DRIVERS = ("asyncpg", "psycopg2", "pg8000", "aiopg")
"""Drivers whose connections cannot run our statement: psycopg 3 alone speaks all of its types."""


async def fetch(within: object, text: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Ask on the caller's connection; nothing is committed here."""
    connection = driver_connection(within)
    with as_ours():
        if isinstance(connection, AsyncConnection):
            async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
                await cursor.execute(text, values, binary=True)
                return list(await cursor.fetchall())
        with RawCursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(text, values, binary=True)
            return list(cursor.fetchall())


def driver_connection(within: Any) -> AsyncConnection[Any] | Connection[Any]:
    """The psycopg connection in what a caller has: its own, SQLAlchemy's connection or session, or Django's."""
    found = within
    if hasattr(found, "sync_session") or hasattr(found, "sync_connection"):
        found = getattr(found, "sync_session", None) or found.sync_connection
    if not isinstance(found, psycopg.Connection | AsyncConnection) and callable(getattr(found, "connection", None)):
        found = found.connection()  # an SQLAlchemy session
    if hasattr(found, "in_transaction") and hasattr(found, "begin") and not found.in_transaction():
        found.begin()  # an SQLAlchemy connection commits only what it knows to have begun
    driver = ""
    for _ in range(3):
        if isinstance(found, psycopg.Connection | AsyncConnection):
            return found
        package = type(found).__module__.split(".")[0]
        driver = f"; this one is {package}'s" if package in OTHER_DRIVERS else driver
        found = getattr(found, "driver_connection", None) or getattr(found, "connection", None)
    raise ConfigError(
        f"within={show(within)} is wrong: expected a connection of psycopg 3 (`pip install psycopg`), an SQLAlchemy "
        f"connection or session on it (postgresql+psycopg://…), or Django's connection with it{driver}",
        option="within",
        value=within,
    )
