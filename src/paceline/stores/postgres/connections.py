"""Connections, a few for each event loop: the claim loop, the lease thread and `_sync` calls each have their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from paceline.errors import StoreUnavailable

MOST = 10
"""So many connections one event loop opens at most."""


class Loop:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(MOST)
        self.idle: list[AsyncConnection[Any]] = []
        self.all: set[AsyncConnection[Any]] = set()


class Connections:
    """Opens connections when they are needed, keeps them, and forgets those that broke."""

    def __init__(self, url: str, options: dict[str, Any], prepare: bool) -> None:
        self.url = url
        self._options = options
        self._prepare = prepare
        self._loops: dict[asyncio.AbstractEventLoop, Loop] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.pids: set[int] = set()
        """The server's numbers of our connections, to know our own words when we hear them."""

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @asynccontextmanager
    async def one(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection for one statement; an error that left it unusable makes it go."""
        mine = self._mine()
        async with mine.room:
            connection = None
            while mine.idle and connection is None:
                connection = mine.idle.pop()
                if connection.closed:
                    mine.all.discard(connection)
                    connection = None
            if connection is None:
                connection = await self.connect()
                mine.all.add(connection)
            try:
                yield connection
            finally:
                idle = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
                if idle and not connection.closed and not self._closed:
                    mine.idle.append(connection)
                else:
                    # Broken, or left in the middle of a statement by somebody who was cancelled.
                    mine.all.discard(connection)
                    connection.pgconn.finish()

    async def connect(self) -> AsyncConnection[Any]:
        """A new connection in autocommit: every call is one statement and one transaction."""
        options = {"fallback_application_name": "paceline"} | self._options
        connection: AsyncConnection[Any] = await AsyncConnection.connect(self.url, autocommit=True, **options)
        connection.prepare_threshold = 2 if self._prepare else None
        self.pids.add(connection.info.backend_pid)
        return connection

    def connect_plainly(self) -> Connection[Any]:
        """A new connection for a thread without an event loop."""
        options = {"fallback_application_name": "paceline ears"} | self._options
        connection: Connection[Any] = Connection.connect(self.url, autocommit=True, **options)
        return connection

    def drop_idle(self) -> None:
        """The server went away: connections that wait are of no use any more."""
        for mine in list(self._loops.values()):
            while mine.idle:
                connection = mine.idle.pop()
                mine.all.discard(connection)
                connection.pgconn.finish()

    def close(self) -> None:
        """Close all of them, whatever loop they belong to."""
        self._closed = True
        with self._lock:
            loops, self._loops = self._loops, {}
        for mine in loops.values():
            for connection in mine.all:
                connection.pgconn.finish()

    def reopen(self) -> None:
        """Connections may be opened again."""
        self._closed = False

    def _mine(self) -> Loop:
        if self._closed:
            raise StoreUnavailable("the store was closed")
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            with self._lock:
                for other in [each for each in self._loops if each.is_closed()]:
                    # Its program ended without a word: nobody uses these any more.
                    for connection in self._loops.pop(other).all:
                        connection.pgconn.finish()
                found = self._loops.setdefault(loop, Loop())
        return found
