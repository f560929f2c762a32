"""Procrastinate on PostgreSQL: one worker; finished jobs are only marked, cheaper for it than removing them."""

from __future__ import annotations

import asyncio

import procrastinate

from bench.adapters.interface import Adapter, Handle, Payload, Rate


class System(Adapter):
    """The setting is the concurrency."""

    bulk = True

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.label = f"Procrastinate, concurrency {setting}"
        self.handle: Handle | None = None

    async def open(self) -> None:
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.url))
        await self.app.open_async()
        if not await self.app.check_connection_async():
            await self.app.schema_manager.apply_schema_async()

        async def noop(payload: Payload) -> None:
            assert self.handle is not None
            self.handle(payload)

        self.noop = self.app.task(name="noop")(noop)

    async def add(self, payload: Payload) -> None:
        await self.noop.defer_async(payload=payload)

    async def add_many(self, payload: Payload, count: int) -> None:
        await self.noop.batch_defer_async(*({"payload": payload} for _ in range(count)))

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        self.handle = handle
        worker = self.app.run_worker_async(
            concurrency=int(self.setting), wait=True, install_signal_handlers=False, delete_jobs="never"
        )
        running = asyncio.create_task(worker)
        await stop.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        await self.app.close_async()
