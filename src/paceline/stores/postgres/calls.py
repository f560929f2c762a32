"""One call is one statement: a function in the database, asked again when two transactions met or a link broke."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection
from psycopg.raw_cursor import AsyncRawCursor

from paceline.errors import SchemaMismatch
from paceline.stores.postgres import schema as schemas
from paceline.stores.postgres.connections import Connections
from paceline.stores.postgres.faults import as_ours, may_try_again
from paceline.stores.postgres.names import Names
from paceline.stores.postgres.texts import WARM_UP

TRIES = 5
"""So often a step is tried when another transaction is in its way."""


class Sending:
    """When a call was begun and when it was sent: what passes between the two comes before its stamp."""

    def __init__(self, warm: bool = False) -> None:
        self.warm = warm
        """The connection has to have made its plans before."""
        self.sent = self._begun = time.monotonic_ns()

    def waited(self) -> int:
        """How long it took until it was sent, the last time if it was sent several times."""
        return (self.sent - self._begun) // 1000


class Calls:
    """Asks functions of one schema by their names."""

    def __init__(self, connections: Connections, names: Names) -> None:
        self._connections = connections
        self._names = names
        self.text = names.text
        self._seen_until = 0.0
        """Until then the database knows that these functions are in use."""
        self._warm: WeakSet[AsyncConnection[Any]] = WeakSet()

    async def rows(
        self, query: str, *values: Any, again: bool = True, sending: Sending | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a query; `again`: asking twice does no harm, so a broken connection is tried anew once."""
        tries = 0
        while True:
            tries += 1
            try:
                with as_ours():
                    async with self._connections.one() as connection:
                        if time.monotonic() >= self._seen_until:
                            await self._note_use(connection)
                        if sending is not None:
                            await self._about_to_send(connection, sending)
                        return await fetch(connection, self.text(query), values)
            except Exception as error:
                cause = error.__cause__
                if may_try_again(cause or error) and tries < TRIES:
                    await asyncio.sleep(random.uniform(0.001, 0.01) * 2**tries)
                    continue
                if again and tries == 1 and isinstance(cause, psycopg.OperationalError) and _broke(cause):
                    # The server restarted, or somebody cut an idle connection: a new one may work.
                    self._connections.drop_idle()
                    continue
                if isinstance(error, SchemaMismatch):
                    await self._explain()
                raise

    async def opened(self, connection: AsyncConnection[Any], migrate: bool) -> None:
        """Find or make tables and functions that these calls can work with."""
        await (schemas.migrate if migrate else schemas.check)(connection, self._names)
        await schemas.look_at_all(connection, self._names)
        await self._note_use(connection)

    async def _note_use(self, connection: AsyncConnection[Any]) -> None:
        self._seen_until = time.monotonic() + schemas.SEEN_EVERY
        await schemas.seen(connection, self._names)

    async def _explain(self) -> None:
        """Something that we need is gone: raise the reason, where the database knows a better one."""
        with as_ours():
            async with self._connections.one() as connection:
                await schemas.check(connection, self._names)

    async def _about_to_send(self, connection: AsyncConnection[Any], sending: Sending) -> None:
        if sending.warm and connection not in self._warm:
            await fetch(connection, self.text(WARM_UP), ())
            self._warm.add(connection)
        sending.sent = time.monotonic_ns()

    async def row(
        self, query: str, *values: Any, again: bool = True, sending: Sending | None = None
    ) -> tuple[Any, ...]:
        """The only row of a query."""
        return (await self.rows(query, *values, again=again, sending=sending))[0]

    async def value(self, query: str, *values: Any, again: bool = True) -> Any:
        """The only value of a query."""
        return (await self.row(query, *values, again=again))[0]


async def fetch(connection: AsyncConnection[Any], text: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Ask on one connection; placeholders are $1, $2, …, answers come in binary."""
    async with AsyncRawCursor(connection) as cursor:
        await cursor.execute(text, values, binary=True)
        # Not `description`: it describes every column, in Python.
        return await cursor.fetchall() if cursor.rownumber is not None else []


def _broke(error: psycopg.OperationalError) -> bool:
    code = error.sqlstate or ""
    return not code or code.startswith(("08", "57P"))
