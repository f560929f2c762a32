"""pgqueuer, on PostgreSQL (a pool of asyncpg, or one connection of psycopg) and in memory.

Its QueueManager alone, without the scheduler beside it and without log aggregation. Its batch size does not bound the
jobs in flight. Payloads are bytes to it: they are encoded here.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

from bench.adapters.interface import Adapter, Handle, Payload, Rate

CONNECTIONS = 10


class System(Adapter):
    """The setting is the batch size, on PostgreSQL behind the driver: `asyncpg-300`."""

    bulk = True

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        *driver, batch = setting.split("-")
        self.driver = driver[0] if driver else "memory"
        self.batch = int(batch)
        self.label = ", ".join(["pgqueuer", *driver, f"batch {batch}"])
        self.connection: Any = None

    async def open(self) -> None:
        if self.driver == "memory":
            self.app = PgQueuer.in_memory()
        elif self.driver == "asyncpg":
            self.connection = await asyncpg.create_pool(self.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
            self.app = PgQueuer.from_asyncpg_pool(self.connection)
        else:
            self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
            self.app = PgQueuer.from_psycopg_connection(self.connection)
        queries: Any = self.app.queries
        self.queries = queries
        if self.driver != "memory" and not await queries.has_table("pgqueuer"):
            await queries.install()

    async def add(self, payload: Payload) -> None:
        await self.queries.enqueue("noop", json.dumps(payload).encode())

    async def add_many(self, payload: Payload, count: int) -> None:
        data = [json.dumps(payload).encode() for _ in range(count)]
        await self.queries.enqueue(["noop"] * count, data, [0] * count)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        async def noop(job: Job) -> None:
            assert job.payload is not None
            handle(json.loads(job.payload))

        self.app.entrypoint("noop", accepts_context=False)(noop)
        running = asyncio.create_task(
            self.app.qm.run(
                batch_size=self.batch,
                mode=QueueExecutionMode.continuous,
                dequeue_timeout=timedelta(seconds=1),
                log_aggregation_interval=timedelta(0),
            )
        )
        await stop.wait()
        self.app.shutdown.set()
        await running

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()
