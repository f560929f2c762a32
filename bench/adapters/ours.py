"""Paceline on its memory store: a drain without and with limits, and a limiter in process."""

from __future__ import annotations

import asyncio
from typing import Any

from adapters.interface import WINDOW, Lap, Stopwatch
from paceline import Concurrency, GroupLimits, Job, Limit, Limiter, Queue, Rate, Worker, open_store

# None of these binds, but all are at work: a million starts a second allowed, counted in windows that slide.
RATE = Rate(WINDOW, per="1ms")
LIMITS = [Limit("service", RATE & Concurrency(WINDOW), tasks=["noop"]), Limit("line", RATE, queues=["bench"])]
GROUP = GroupLimits(concurrency=WINDOW, limiter=RATE)


class OursQueue:
    """One worker; `groups=0` is a queue without groups and without limits."""

    def __init__(self, concurrency: int, groups: int) -> None:
        self.name = f"ours, {groups:,} groups, limits on" if groups else "ours, limits off"
        self.concurrency = concurrency
        self.groups = groups

    async def setup(self, jobs: int) -> None:
        self.watch = watch = Stopwatch(jobs)

        async def noop(job: Job[Any]) -> None:
            watch.tick()

        store = open_store("memory://")
        groups = self.groups
        self.queue = Queue("bench", store=store, limits=LIMITS if groups else ())
        self.worker = Worker("bench", noop, store=store, concurrency=self.concurrency, group=GROUP if groups else None)
        if groups:
            await self.queue.add_many(("noop", None, {"keep": 0, "group": f"g{n % groups}"}) for n in range(jobs))
        else:
            await self.queue.add_many(("noop", None, {"keep": 0}) for _ in range(jobs))

    async def drain(self) -> Lap:
        async with self.worker:
            await self.watch.done.wait()
        left = sum((await self.queue.counts()).values())
        if left:
            raise AssertionError(f"{left} jobs are left in the store")
        return self.watch.lap()


class OursLimiter:
    """`await limiter.try_acquire()` on the memory store."""

    name = "ours, try_acquire"

    async def granted(self, n: int) -> Lap:
        limiter = Limiter("bench", Rate(WINDOW, per="1h"), store=open_store("memory://"))
        seconds = cpu = 0.0
        for _ in range(n // WINDOW):
            lap = await _grants(limiter)
            seconds, cpu = seconds + lap.seconds, cpu + lap.cpu
            await limiter.clear()
        return Lap(seconds, cpu)

    async def sliding(self, n: int) -> Lap:
        store = open_store("memory://")
        limiters = [Limiter(f"bench-{i}", Rate(WINDOW, per="1s"), store=store) for i in range(n // WINDOW)]
        for limiter in limiters:
            await _grants(limiter)
        await asyncio.sleep(1.01)
        start = Lap.now()
        for limiter in limiters:
            await _grants(limiter)
        return Lap.now().since(start)

    async def refused(self, n: int) -> Lap:
        limiter = Limiter("bench", Rate(WINDOW, per="1h"), store=open_store("memory://"))
        await _grants(limiter)
        granted = 0
        start = Lap.now()
        for _ in range(n):
            if await limiter.try_acquire() is not None:
                granted += 1
        lap = Lap.now().since(start)
        assert granted == 0, granted
        return lap


async def _grants(limiter: Limiter) -> Lap:
    """Fill one window."""
    granted = 0
    start = Lap.now()
    for _ in range(WINDOW):
        if await limiter.try_acquire() is not None:
            granted += 1
    lap = Lap.now().since(start)
    assert granted == WINDOW, granted
    return lap
