"""Connections, a few for each event loop: the claim loop, the lease thread and `_sync` calls each have their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from paceline.forks import PerLoop, reset_when_forked

MOST = 10
"""So many connections one event loop opens at most."""


class Loop:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(MOST)
        self.idle: list[AsyncConnection[Any]] = []
        self.all: dict[AsyncConnection[Any], int] = {}
        """With the server's number of each."""


class Connections:
    """Opens connections when they are needed, keeps them, and forgets those that broke."""

    def __init__(self, url: str, options: dict[str, Any], prepare: bool) -> None:
        self.url = url
        self._options = options
        self._prepare = prepare
        # Closing a parent's connection in a child would end it for the parent too.
        self._loops: PerLoop[asyncio.AbstractEventLoop, Loop] = PerLoop()
        self.closings = 0
        """How often `close` was called: whoever waited meanwhile gets an error, later calls connect anew."""
        self.forked()
        reset_when_forked(self)

    def forked(self) -> None:
        """Begin without connections."""
        self._lock = threading.Lock()
        self.pids: set[int] = set()
        """The server's numbers of our connections, to know our own words when we hear them."""

    @asynccontextmanager
    async def one(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection for one statement; an error that left it unusable makes it go."""
        mine = self._mine()
        async with mine.room:
            connection = None
            while mine.idle and connection is None:
                connection = mine.idle.pop()
                if connection.closed:
                    self._drop(mine, connection)
                    connection = None
            if connection is None:
                connection = await self.connect()
                mine.all[connection] = connection.info.backend_pid
            try:
                yield connection
            finally:
                idle = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
                if idle and not connection.closed and self._loops.get(asyncio.get_running_loop()) is mine:
                    mine.idle.append(connection)
                else:
                    # Broken, closed meanwhile, or left in the middle of a statement by somebody who was cancelled.
                    self._drop(mine, connection)

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
                self._drop(mine, mine.idle.pop())

    def close(self) -> None:
        """Close all of them, whatever loop they belong to; the next call connects anew."""
        self.closings += 1
        with self._lock:
            loops = self._loops.take()
        for mine in loops.values():
            self._drop_all(mine)

    def _drop(self, mine: Loop, connection: AsyncConnection[Any]) -> None:
        # The server may give the number of a connection that is gone to somebody else.
        self.pids.discard(mine.all.pop(connection, 0))
        connection.pgconn.finish()

    def _drop_all(self, mine: Loop) -> None:
        for connection in list(mine.all):
            self._drop(mine, connection)

    def _mine(self) -> Loop:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            with self._lock:
                for other in [each for each in self._loops if each.is_closed()]:
                    # Its program ended without a word: nobody uses these any more.
                    self._drop_all(self._loops.pop(other))
                found = self._loops.setdefault(loop, Loop())
        return found
