"""What one claim costs on the memory store, with few and with very many waiting jobs and groups."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from paceline import Limit, Rate, Store, open_store
from paceline.job import JobRecord, NewJob
from paceline.options import new_id
from paceline.stores.interface import Ask, Finish, Outcome

QUEUE = "flat"
OPEN = "g0"
HOUR = 3_600_000_000
WARM_UP = 500


@dataclass(frozen=True)
class Shape:
    """So many waiting jobs in so many groups; `blocked`: in every group but one a start has used up its hour."""

    jobs: int
    groups: int
    blocked: bool

    @property
    def name(self) -> str:
        state = "all but one blocked" if self.blocked else "all ready"
        return f"{self.jobs:,} jobs in {self.groups:,} groups, {state}"


SHAPES = {
    "small-blocked": Shape(1_000, 10, True),
    "large-blocked": Shape(1_000_000, 100_000, True),
    "small-ready": Shape(1_000, 10, False),
    "large-ready": Shape(1_000_000, 100_000, False),
    "middle-blocked": Shape(100_000, 10_000, True),
    "middle-ready": Shape(100_000, 10_000, False),
}


class Bed:
    """A store in one shape; whatever a claim took out is put back, so that all claims meet the same shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.store: Store = open_store("memory://")
        self._claims = itertools.count()

    async def fill(self) -> None:
        shape = self.shape
        free = Rate(1_000, per="1ms")  # does not bind
        limit = Limit(
            "tenant",
            Rate(1, per="1h") if shape.blocked else free,
            by="group",
            overrides={OPEN: free} if shape.blocked else None,
        )
        await self.store.open()
        await self.store.set_limits([limit])
        # One more for each group that is going to start one.
        jobs = shape.jobs + (shape.groups if shape.blocked else 0)
        for first in range(0, jobs, 10_000):
            numbers = range(first, min(first + 10_000, jobs))
            await self.store.insert([_job(f"g{n % shape.groups}") for n in numbers])
        if shape.blocked:
            await self._block()

    async def _block(self) -> None:
        """Turns let every group start once before any starts twice."""
        blocked: set[str | None] = set()
        while len(blocked) < self.shape.groups:
            started = await self.claim(min(500, self.shape.groups - len(blocked)))
            blocked.update(job.group for job in started)
            await self.finish(started)
        assert {job.group for job in await self.cycle(10)} == {OPEN}

    async def claim(self, slots: int) -> list[JobRecord]:
        return (await self.store.claim(self._ask(slots))).jobs

    def _ask(self, slots: int) -> Ask:
        return Ask(queues=(QUEUE,), slots=slots, worker="bench", lease=HOUR, claim_id=str(next(self._claims)))

    async def finish(self, jobs: list[JobRecord]) -> None:
        lost = await self.store.finish([_completed(job) for job in jobs])
        assert not lost, lost

    async def cycle(self, slots: int) -> list[JobRecord]:
        """Claim, finish, put back."""
        jobs = await self.claim(slots)
        await self.finish(jobs)
        await self.store.insert([_job(job.group) for job in jobs])
        return jobs

    async def time_claims(self, slots: int, claims: int) -> dict[str, float]:
        """Microseconds of one claim, and of one finish of all its jobs: processor time of this thread, because a
        claim here never waits, and because the turns that other processes take would drown the p99."""
        store, now = self.store, time.thread_time_ns
        for _ in range(WARM_UP):
            await self.cycle(slots)
        claiming, finishing = [], []
        for _ in range(claims):
            ask = self._ask(slots)
            start = now()
            claim = await store.claim(ask)
            claiming.append(now() - start)
            assert len(claim.jobs) == slots, claim
            ends = [_completed(job) for job in claim.jobs]
            start = now()
            await store.finish(ends)
            finishing.append(now() - start)
            await store.insert([_job(job.group) for job in claim.jobs])
        return {
            "p50": median(claiming) / 1000,
            "p99": quantiles(claiming, n=100)[98] / 1000,
            "finish_p50": median(finishing) / 1000,
        }


async def measure(shape: Shape, claims: int, settle: Callable[[], None]) -> dict[str, Any]:
    """Fill, block, settle the collector, then time claims of 1 and of 10 slots."""
    bed = Bed(shape)
    start = time.perf_counter()
    await bed.fill()
    filled = time.perf_counter() - start
    settle()
    slots = {str(slots): await bed.time_claims(slots, claims) for slots in (1, 10)}
    counts = await bed.store.counts(QUEUE)
    assert counts["waiting"] == shape.jobs, counts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"name": shape.name, "slots": slots, "setup_seconds": filled, "peak_mib": peak}


def _job(group: str | None) -> NewJob:
    return NewJob(id=new_id(), queue=QUEUE, task="noop", group=group, keep=0)


def _completed(job: JobRecord) -> Finish:
    return Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED)
