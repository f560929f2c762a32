"""Connections to the shared PostgreSQL server that go from the stores of one test to those of the next.

With its first claim a connection compiles and plans our functions, which takes longer than most tests; what a worker
does for hours is done on a connection that has. How connections are opened, break and end is tried in tests/postgres.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from paceline.stores.postgres.connections import Connections, Loop
from paceline.stores.postgres.store import PostgresStore

MOST = 8
"""So many wait for their next test; the others are closed."""

_waiting: dict[tuple[int, str, str], list[PGconn]] = defaultdict(list)
_lock = threading.Lock()


class Reused(Connections):
    """Takes what another store left before it connects, and leaves what nobody uses."""

    async def connect(self) -> AsyncConnection[Any]:
        pgconn = self._take()
        if pgconn is None:
            return await super().connect()
        connection: AsyncConnection[Any] = AsyncConnection(pgconn)
        await connection.set_autocommit(True)
        connection.prepare_threshold = 2 if self._prepare else None
        self.pids.add(connection.info.backend_pid)
        return connection

    def _drop_all(self, mine: Loop) -> None:
        while mine.idle:
            connection = mine.idle.pop()
            if not self._leave(connection.pgconn):
                self._drop(mine, connection)
                continue
            self.pids.discard(mine.all.pop(connection))
            connection._pool = None  # as psycopg marks one that outlives its object
        super()._drop_all(mine)

    @property
    def _left(self) -> list[PGconn]:
        # A child must not use what its parent left.
        return _waiting[os.getpid(), self.url, repr(sorted(self._options.items()))]

    def _take(self) -> PGconn | None:
        while True:
            with _lock:
                if not self._left:
                    return None
                pgconn = self._left.pop()
            if pgconn.exec_(b"deallocate all; reset all").status == ExecStatus.COMMAND_OK:
                return pgconn
            pgconn.finish()

    def _leave(self, pgconn: PGconn) -> bool:
        with _lock:
            if pgconn.transaction_status != TransactionStatus.IDLE or len(self._left) >= MOST:
                return False
            self._left.append(pgconn)
            return True


def reusing(store: PostgresStore) -> PostgresStore:
    """The same store, with connections that others have used before."""
    store.connections.__class__ = Reused
    return store
