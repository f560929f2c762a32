"""pgqueuer on PostgreSQL with psycopg: QueueManager alone, no log aggregation."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import PsycopgDriver
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

from adapters.interface import Lap, Stopwatch
from adapters.postgres_server import new_server


class PgQueuerPostgres:
    """One QueueManager; the batch size is what is measured for its best value."""

    def __init__(self, batch: int) -> None:
        self.name = f"pgqueuer on PostgreSQL, batch {batch}"
        self.batch = batch

    async def setup(self, jobs: int) -> None:
        self.server = new_server().__enter__()
        self.watch = watch = Stopwatch(jobs)
        self.connection = await psycopg.AsyncConnection.connect(self.server.url(), autocommit=True)
        self.app = PgQueuer(PsycopgDriver(self.connection))
        assert self.app.queries is not None
        await self.app.queries.install()

        @self.app.entrypoint("noop", accepts_context=False)
        async def noop(job: Job) -> None:
            watch.tick()

        for first in range(0, jobs, 2000):
            number = min(2000, jobs - first)
            await self.app.queries.enqueue(["noop"] * number, [None] * number, [0] * number)

    async def drain(self) -> Lap:
        running = asyncio.create_task(
            self.app.qm.run(
                batch_size=self.batch,
                mode=QueueExecutionMode.drain,
                dequeue_timeout=timedelta(seconds=1),
                log_aggregation_interval=timedelta(0),
            )
        )
        await self.watch.done.wait()
        self.app.shutdown.set()
        await running
        await self.connection.close()
        self.server.__exit__()
        return self.watch.lap()
