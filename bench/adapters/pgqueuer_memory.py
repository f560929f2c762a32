"""pgqueuer's in-memory driver: QueueManager alone (no scheduler beside it), no log aggregation, nothing traced."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

from adapters.interface import Lap, Stopwatch

BATCHES = (50, 100, 200, 500)
"""All are measured; the fastest one counts. Its batch size does not bound the jobs in flight."""


class PgQueuerMemory:
    """One QueueManager; it keeps no results, and it cannot be told not to log."""

    def __init__(self, batch: int) -> None:
        self.name = f"pgqueuer, batch {batch}"
        self.batch = batch

    async def setup(self, jobs: int) -> None:
        self.watch = watch = Stopwatch(jobs)
        self.app = PgQueuer.in_memory()

        @self.app.entrypoint("noop", accepts_context=False)
        async def noop(job: Job) -> None:
            watch.tick()

        assert self.app.queries is not None
        await self.app.queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)

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
        return self.watch.lap()
