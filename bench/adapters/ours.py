"""Paceline, on any store: one worker with 100 slots (250 on PostgreSQL), finished jobs removed at once."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.adapters.interface import Adapter, Handle, Payload, Rate
from paceline import Concurrency, GroupLimits, Job, Limit, Queue, Worker, open_store
from paceline import Rate as Starts

# None of these binds, but all are at work, and every start of a drain stays in their windows.
WIDE = Starts(1_000_000, per="10s")
SHARED = Limit("service", WIDE & Concurrency(1_000), tasks=["noop"])
EACH = GroupLimits(concurrency=1_000, limiter=WIDE)
GROUPS = 1_000
SLOTS = {"postgresql": 250}
"""Where a commit is dear, more jobs at a time are better; pgqueuer has 300 in flight there."""

SHAPES = {
    "plain": "no limits",
    "limit": "a shared limit",
    "groups": "1,000 groups",
    "tenants": "1,000 groups, shared and group limits",
    "kept": "finished jobs kept",
}


class System(Adapter):
    """A setting is a shape, and options behind commas: `limit,durability=full,slots=300`."""

    bulk = True

    def __init__(self, url: str, setting: str = "plain", limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.shape, *words = setting.split(",")
        options = dict(word.split("=") for word in words)
        self.slots = int(options.pop("slots", SLOTS.get(url.partition(":")[0], 100)))
        guard = options.pop("guard", None)
        if url.startswith("sqlite") and "durability" not in options:
            options["durability"] = "normal"
        told = [SHAPES[self.shape], *words]
        self.label = ", ".join(["ours", *told]) if limit is None else ", ".join(["ours", *words])
        self.store = open_store(url, **options)
        limits = [SHARED] if self.shape in ("limit", "tenants") else []
        if limit is not None:
            limits = [Limit("service", Starts(limit.starts, per=limit.seconds, guard=guard), tasks=["noop"])]
        self.queue = Queue("bench", store=self.store, limits=limits)
        self.options: dict[str, Any] = {} if self.shape == "kept" else {"keep": 0}

    async def open(self) -> None:
        await self.queue.counts()

    async def add(self, payload: Payload) -> None:
        await self.queue.add("noop", payload, **self.options)

    async def add_many(self, payload: Payload, count: int) -> None:
        if self.shape in ("groups", "tenants"):
            jobs: Any = [("noop", payload, self.options | {"group": f"g{n % GROUPS}"}) for n in range(count)]
        else:
            jobs = [("noop", payload, self.options)] * count
        await self.queue.add_many(jobs)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        async def noop(job: Job[Any]) -> None:
            handle(job.data)

        group = EACH if self.shape == "tenants" else None
        async with Worker("bench", noop, store=self.store, concurrency=self.slots, group=group):
            await stop.wait()

    async def starts(self) -> list[int]:
        return [round(start.at.timestamp() * 1e6) for start in await self.queue.starts()]

    async def close(self) -> None:
        await self.store.close()
