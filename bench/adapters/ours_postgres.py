"""Paceline on PostgreSQL: a drain without limits, or with shared ones (and one per group) that do not bind."""

from __future__ import annotations

from typing import Any

from adapters.interface import Lap, Stopwatch
from adapters.postgres_server import new_server
from paceline import Concurrency, Job, Limit, Queue, Rate, Worker, open_store

WIDE = Rate(1_000_000, per="1s")
SHARED = [Limit("service", WIDE & Concurrency(1000), tasks=["noop"])]
EACH = [Limit("tenant", WIDE & Concurrency(1000), by="group")]


class OursPostgres:
    """One worker; `groups=0` is a queue without groups; `limits`: 0 none, 1 shared, 2 also per group."""

    def __init__(self, concurrency: int, groups: int, limits: int) -> None:
        said = ("no limits", "a shared limit", "shared and group limits")[limits]
        self.name = f"ours on PostgreSQL, {groups:,} groups, {said}"
        self.concurrency = concurrency
        self.groups = groups
        self.limits = [[], SHARED, [*SHARED, *EACH]][limits]

    async def setup(self, jobs: int) -> None:
        self.server = new_server().__enter__()
        self.watch = watch = Stopwatch(jobs)

        async def noop(job: Job[Any]) -> None:
            watch.tick()

        self.store = store = open_store(self.server.url())
        self.queue = Queue("bench", store=store, limits=self.limits)
        self.worker = Worker("bench", noop, store=store, concurrency=self.concurrency)
        groups = self.groups
        for first in range(0, jobs, 2000):
            options = [{"group": f"g{n % groups}"} if groups else {} for n in range(first, min(first + 2000, jobs))]
            await self.queue.add_many(("noop", None, each) for each in options)

    async def drain(self) -> Lap:
        async with self.worker:
            await self.watch.done.wait()
        await self.store.close()
        self.server.__exit__()
        return self.watch.lap()
