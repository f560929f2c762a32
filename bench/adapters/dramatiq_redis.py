"""Dramatiq: one worker with threads; retries and other middleware that a no-op does not need are off."""

from __future__ import annotations

import asyncio
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from adapters.interface import Lap, Stopwatch
from adapters.redis_server import Server


class DramatiqRedis:
    def __init__(self, threads: int) -> None:
        self.name = f"Dramatiq, {threads} threads"
        self.threads = threads

    async def setup(self, jobs: int) -> dict[str, float]:
        self.server = Server()
        self.watch = watch = Stopwatch(jobs)
        self.broker = RedisBroker(url=self.server.url, middleware=[])
        dramatiq.set_broker(self.broker)
        loop = asyncio.get_running_loop()

        @dramatiq.actor(broker=self.broker)
        def noop() -> None:
            watch.tick_from_thread(loop)

        start = time.perf_counter()
        for _ in range(jobs):
            noop.send()
        return {"adds": jobs / (time.perf_counter() - start)}

    async def drain(self) -> Lap:
        worker = dramatiq.Worker(self.broker, worker_timeout=100, worker_threads=self.threads)
        worker.start()
        await self.watch.done.wait()
        await asyncio.to_thread(worker.stop)
        self.broker.close()
        self.server.close()
        return self.watch.lap()
