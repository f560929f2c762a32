"""taskiq with its Redis stream broker: one receiver in the loop, no results."""

from __future__ import annotations

import asyncio
import time

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from adapters.interface import Lap, Stopwatch
from adapters.redis_server import Server


class TaskiqRedis:
    def __init__(self, concurrency: int) -> None:
        self.name = f"taskiq, streams, {concurrency} tasks"
        self.concurrency = concurrency

    async def setup(self, jobs: int) -> dict[str, float]:
        self.server = Server()
        self.watch = watch = Stopwatch(jobs)
        self.broker = RedisStreamBroker(url=self.server.url)

        @self.broker.task(task_name="noop")
        async def noop() -> None:
            watch.tick()

        await self.broker.startup()
        start = time.perf_counter()
        for _ in range(jobs):
            await noop.kiq()
        return {"adds": jobs / (time.perf_counter() - start)}

    async def drain(self) -> Lap:
        self.broker.is_worker_process = True
        running = asyncio.create_task(
            run_receiver_task(self.broker, max_async_tasks=self.concurrency, run_startup=False)
        )
        await self.watch.done.wait()
        running.cancel()
        self.server.close()
        # It waits for its next message and does not let go by itself.
        await asyncio.wait([running], timeout=1)
        return self.watch.lap()
