"""SAQ on Redis: one worker in the loop; nothing kept of finished jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from saq import Queue, Worker

from bench.adapters.interface import Adapter, Handle, Payload, Rate


class System(Adapter):
    """The setting is the concurrency."""

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.label = f"SAQ, concurrency {setting}"

    async def open(self) -> None:
        self.queue = Queue.from_url(self.url)
        await self.queue.connect()

    async def add(self, payload: Payload) -> None:
        await self.queue.enqueue("noop", payload=payload, ttl=-1)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        async def noop(context: Any, *, payload: Payload) -> None:
            handle(payload)

        worker: Any = Worker(self.queue, functions=[("noop", noop)], concurrency=int(self.setting))
        running = asyncio.create_task(worker.start())
        await stop.wait()
        await worker.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        await self.queue.disconnect()
