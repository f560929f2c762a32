"""Paceline on Redis: `off` without limits, `on` with two shared limits and one per group that do not bind."""

from __future__ import annotations

import time
from typing import Any

from adapters.interface import Lap, Stopwatch
from adapters.redis_server import Server
from paceline import Concurrency, Job, Limit, Queue, Rate, Worker, open_store

LIMITS = [
    Limit("service", Rate(100_000, per="1s") & Concurrency(1_000), tasks=["noop"]),
    Limit("line", Rate(100_000, per="1s"), queues=["bench"]),
]


class OursRedis:
    """One worker process."""

    def __init__(self, limits: str, concurrency: int) -> None:
        self.name = f"ours, limits {limits}, concurrency {concurrency}"
        self.limits = LIMITS if limits == "on" else []
        self.concurrency = concurrency

    async def setup(self, jobs: int) -> dict[str, float]:
        self.server = Server()
        self.store = open_store(self.server.url)
        self.watch = watch = Stopwatch(jobs)

        async def noop(job: Job[Any]) -> None:
            watch.tick()

        self.worker = Worker("bench", noop, store=self.store, concurrency=self.concurrency)
        self.queue = Queue("bench", store=self.store, limits=self.limits)
        await self.queue.counts()
        singles = min(jobs, 2_000)
        start = time.perf_counter()
        for _ in range(singles):
            await self.queue.add("noop", None, keep=0)
        middle = time.perf_counter()
        for first in range(0, jobs - singles, 1_000):
            await self.queue.add_many([("noop", None, {"keep": 0})] * min(1_000, jobs - singles - first))
        end = time.perf_counter()
        bulk = (jobs - singles) / (end - middle) if jobs > singles else 0.0
        return {"adds": singles / (middle - start), "bulk": bulk}

    async def drain(self) -> Lap:
        async with self.worker:
            await self.watch.done.wait()
        await self.store.close()
        self.server.close()
        return self.watch.lap()
