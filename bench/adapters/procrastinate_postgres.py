"""Procrastinate on PostgreSQL: one worker with its own concurrency."""

from __future__ import annotations

import procrastinate

from adapters.interface import Lap, Stopwatch
from adapters.postgres_server import new_server


class Procrastinate:
    """One worker of so many jobs at a time."""

    def __init__(self, concurrency: int) -> None:
        self.name = f"Procrastinate, concurrency {concurrency}"
        self.concurrency = concurrency

    async def setup(self, jobs: int) -> None:
        self.server = new_server().__enter__()
        self.watch = watch = Stopwatch(jobs)
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.server.url()))
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

        @self.app.task(name="noop")
        async def noop() -> None:
            watch.tick()

        for first in range(0, jobs, 2000):
            await noop.batch_defer_async(*({} for _ in range(min(2000, jobs - first))))

    async def drain(self) -> Lap:
        await self.app.run_worker_async(
            concurrency=self.concurrency, wait=False, install_signal_handlers=False, delete_jobs="never"
        )
        await self.watch.done.wait()
        await self.app.close_async()
        self.server.__exit__()
        return self.watch.lap()
