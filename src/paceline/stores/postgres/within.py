"""Transactional enqueue: the same statement on the caller's own connection, seen if and only if the caller commits."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.raw_cursor import AsyncRawCursor, RawCursor

from paceline.errors import ConfigError
from paceline.stores.postgres.faults import as_ours


async def fetch(within: object, text: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Ask on the caller's connection; nothing is committed here."""
    connection = driver_connection(within)
    with as_ours():
        if isinstance(connection, AsyncConnection):
            async with AsyncRawCursor(connection) as cursor:
                await cursor.execute(text, values, binary=True)
                return list(await cursor.fetchall())
        with RawCursor(connection) as cursor:
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
    for _ in range(3):
        if isinstance(found, psycopg.Connection | AsyncConnection):
            return found
        found = getattr(found, "driver_connection", None) or getattr(found, "connection", None)
    raise ConfigError(
        f"within={within!r} is wrong: expected a psycopg connection, an SQLAlchemy connection or session on psycopg, "
        "or Django's connection",
        option="within",
        value=within,
    )
