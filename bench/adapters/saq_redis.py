"""SAQ: one worker in the loop; nothing kept of finished jobs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from saq import Queue, Worker

from adapters.interface import Lap, Stopwatch
from adapters.redis_server import Server


class SaqRedis:
    def __init__(self, concurrency: int) -> None:
        self.name = f"SAQ, concurrency {concurrency}"
        self.concurrency = concurrency

    async def setup(self, jobs: int) -> dict[str, float]:
        self.server = Server()
        self.watch = watch = Stopwatch(jobs)

        async def noop(context: Any) -> None:
            watch.tick()

        self.queue = Queue.from_url(self.server.url)
        await self.queue.connect()
        start = time.perf_counter()
        for _ in range(jobs):
            await self.queue.enqueue("noop", ttl=-1)
        adds = jobs / (time.perf_counter() - start)
        self.worker: Any = Worker(self.queue, functions=[("noop", noop)], concurrency=self.concurrency)
        return {"adds": adds}

    async def drain(self) -> Lap:
        running = asyncio.create_task(self.worker.start())
        await self.watch.done.wait()
        await self.worker.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await self.queue.disconnect()
        self.server.close()
        return self.watch.lap()
