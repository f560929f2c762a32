"""Paceline on its SQLite store: drains with and without limits, all ways to add, and a worker for other processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adapters.interface import PAYLOAD, AckStopwatch, Lap
from paceline import Concurrency, GroupLimits, Job, Limit, Queue, Rate, Store, Worker, open_store
from paceline.stores.interface import Ask, Claim, Finish

# None of these binds, but all are at work, and every start of a drain stays in their windows.
FREE = Rate(1_000_000, per="1m") & Concurrency(1_000)
SERVICE = Limit("service", FREE, tasks=["noop"])
GROUP = GroupLimits(concurrency=1_000, limiter=Rate(1_000_000, per="1m"))

SHAPES = {
    "off": "no limits",
    "limit": "one limit",
    "groups": "1,000 groups, no limits",
    "tenants": "1,000 groups, limits on both",
    "kept": "no limits, jobs kept",
}
GROUPS = 1_000
CONCURRENCY = 100


class OursSqlite:
    """One worker with 100 slots; done jobs are removed at once, except in the shape `kept`."""

    def __init__(
        self, file: Path, durability: str, shape: str = "off", *, limit: tuple[int, int] | None = None
    ) -> None:
        self.name = f"ours, {durability}, {SHAPES[shape]}"
        self.shape = shape
        limits = [SERVICE] if shape in ("limit", "tenants") else []
        if limit is not None:
            self.name = f"ours, {durability}"
            limits = [Limit("service", Rate(limit[0], per=limit[1]), tasks=["noop"])]
        self.store: Store = open_store(f"sqlite:///{file}", durability=durability)
        self.queue = Queue("bench", store=self.store, limits=limits)

    async def setup(self, jobs: int) -> None:
        self.watch = AckStopwatch(jobs)
        await self._add_bulk(jobs, 1_000)

    async def drain(self) -> Lap:
        watch = self.watch
        _tell_of_finishes(self.store, watch.acknowledge)
        async with self._worker(watch.run, GROUP if self.shape == "tenants" else None):
            await asyncio.to_thread(watch.done.wait)
        counts = await self.queue.counts()
        left = sum(number for state, number in counts.items() if state != "completed")
        assert left == 0 and counts["completed"] == (watch.jobs if self.shape == "kept" else 0), counts
        return watch.lap()

    async def add_singly(self, jobs: int) -> Lap:
        await self.queue.counts()
        start = Lap.now()
        for _ in range(jobs):
            await self.queue.add("noop", PAYLOAD, keep=0)
        return await self._added(jobs, start)

    async def add_together(self, jobs: int, tasks: int) -> Lap:
        """Single adds from so many tasks at the same time."""
        await self.queue.counts()

        async def some() -> None:
            for _ in range(jobs // tasks):
                await self.queue.add("noop", PAYLOAD, keep=0)

        start = Lap.now()
        async with asyncio.TaskGroup() as together:
            for _ in range(tasks):
                together.create_task(some())
        return await self._added(jobs, start)

    async def add_in_bulk(self, jobs: int, size: int) -> Lap:
        """`add_many` of so many at a time."""
        await self.queue.counts()
        start = Lap.now()
        await self._add_bulk(jobs, size)
        return await self._added(jobs, start)

    async def serve(self, handle: Callable[[Any], None], stop: threading.Event) -> None:
        async with self._worker(handle):
            await asyncio.to_thread(stop.wait)

    async def add(self, payload: Any) -> None:
        await self.queue.add("noop", payload, keep=0)

    async def add_all(self, payload: Any, jobs: int) -> None:
        await self.queue.add_many([("noop", payload, {"keep": 0})] * jobs)

    async def starts(self) -> list[int]:
        return [round(start.at.timestamp() * 1e6) for start in await self.queue.starts()]

    async def close(self) -> None:
        await self.store.close()

    def _worker(self, handle: Callable[[Any], None], group: GroupLimits | None = None) -> Worker:
        async def noop(job: Job[Any]) -> None:
            handle(job.data)

        return Worker("bench", noop, store=self.store, concurrency=CONCURRENCY, group=group)

    async def _add_bulk(self, jobs: int, size: int) -> None:
        for first in range(0, jobs, size):
            numbers = range(first, min(first + size, jobs))
            await self.queue.add_many([("noop", PAYLOAD, self._options(n)) for n in numbers])

    def _options(self, number: int) -> Any:
        options: dict[str, Any] = {} if self.shape == "kept" else {"keep": 0}
        return options | ({"group": f"g{number % GROUPS}"} if self.shape in ("groups", "tenants") else {})

    async def _added(self, jobs: int, start: Lap) -> Lap:
        lap = Lap.now().since(start)
        waiting = (await self.queue.counts())["waiting"]
        assert waiting == jobs, waiting
        return lap


def _tell_of_finishes(store: Any, tell: Callable[[int], None]) -> None:
    """Tell how many finishes each answer of the store has acknowledged."""
    claim, finish = store.claim, store.finish

    async def counted_claim(ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        found: Claim = await claim(ask, finishes)
        tell(len(finishes) - len(found.lost))
        return found

    async def counted_finish(finishes: Sequence[Finish]) -> Any:
        lost = await finish(finishes)
        tell(len(finishes) - len(lost))
        return lost

    store.claim, store.finish = counted_claim, counted_finish
