"""What one claim costs, with few and with very many waiting jobs and groups: in memory, and in a file."""

from __future__ import annotations

import itertools
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
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
FILE_WARM_UP = 50
FILE_ROUNDS = 5


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

    def __init__(self, shape: Shape, url: str = "memory://") -> None:
        self.shape = shape
        self.url = url
        self.store: Store = open_store(url)
        self._claims = itertools.count()

    async def limit(self) -> None:
        blocked = self.shape.blocked
        free = Rate(1_000, per="1ms")  # does not bind
        kind = Rate(1, per="1h") if blocked else free
        await self.store.open()
        await self.store.set_limits([Limit("tenant", kind, by="group", overrides={OPEN: free} if blocked else None)])

    async def fill(self) -> None:
        shape = self.shape
        await self.limit()
        # One more for each group that is going to start one.
        jobs = shape.jobs + (shape.groups if shape.blocked else 0)
        each = jobs // shape.groups
        for first in range(0, jobs, 10_000):
            numbers = range(first, min(first + 10_000, jobs))
            await self.store.insert([_job(f"g{n // each}") for n in numbers])

    async def block(self) -> None:
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

    async def time_claims(
        self, slots: int, claims: int, now: Callable[[], int] = time.thread_time_ns, warm_up: int = WARM_UP
    ) -> dict[str, float]:
        """Microseconds of one claim, and of one finish of all its jobs: processor time, of this thread, because a
        claim in memory never waits, and because the turns that other processes take would drown the p99."""
        store, wall = self.store, time.perf_counter_ns
        for _ in range(warm_up):
            await self.cycle(slots)
        claiming, finishing, waiting = [], [], []
        for _ in range(claims):
            ask = self._ask(slots)
            begin, start = wall(), now()
            claim = await store.claim(ask)
            claiming.append(now() - start)
            waiting.append(wall() - begin)
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
            "wall_p50": median(waiting) / 1000,
        }


async def measure(shape: Shape, claims: int, settle: Callable[[], None]) -> dict[str, Any]:
    """Fill, block, settle the collector, then time claims of 1 and of 10 slots."""
    bed = Bed(shape)
    start = time.perf_counter()
    await bed.fill()
    if shape.blocked:
        await bed.block()
    filled = time.perf_counter() - start
    settle()
    slots = {str(slots): await bed.time_claims(slots, claims) for slots in (1, 10)}
    counts = await bed.store.counts(QUEUE)
    assert counts["waiting"] == shape.jobs, counts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"name": shape.name, "slots": slots, "setup_seconds": filled, "peak_mib": peak}


async def measure_file(large: str, claims: int, settle: Callable[[], None]) -> dict[str, Any]:
    """Files with few and with many, blocked and ready, opened anew and timed in turn: processor time of all threads,
    because a file has a thread of its own. All laps in one process, because a large file takes long to build."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        beds: dict[str, Bed] = {}
        for size in ("small", large):
            start = time.perf_counter()
            for state, bed in (await _build(Path(folder) / size, SHAPES[f"{size}-blocked"])).items():
                beds[f"{size}-{state}"] = bed
                found[f"{size}-{state}"] = {"name": bed.shape.name, "rounds": []}
            built = time.perf_counter() - start
            found[f"{size}-{state}"]["setup_seconds"] = built
        for name, bed in beds.items():
            start = time.perf_counter()
            await bed.cycle(1)
            found[name]["first_ms"] = (time.perf_counter() - start) * 1e3
        settle()
        for _ in range(FILE_ROUNDS):
            for name, bed in beds.items():
                laps = {
                    str(slots): await bed.time_claims(slots, claims, time.process_time_ns, FILE_WARM_UP)
                    for slots in (1, 10)
                }
                found[name]["rounds"].append({"slots": laps})
        for bed in beds.values():
            counts = await bed.store.counts(QUEUE)
            assert counts["waiting"] == bed.shape.jobs, counts
            await bed.store.close()
    return {"beds": found}


async def _build(folder: Path, shape: Shape) -> dict[str, Bed]:
    """Two files: one with all but one group blocked, and a copy of it from before, in which no limit binds."""
    folder.mkdir()
    files = {state: folder / f"{state}.db" for state in ("blocked", "ready")}
    url = "sqlite:///{}?durability=normal"
    bed = Bed(shape, url.format(files["blocked"]))
    await bed.fill()
    await bed.store.close()
    shutil.copy(files["blocked"], files["ready"])
    ready = Bed(replace(shape, jobs=shape.jobs + shape.groups, blocked=False), url.format(files["ready"]))
    await ready.limit()
    await ready.store.close()
    bed = Bed(shape, url.format(files["blocked"]))
    await bed.block()
    await bed.store.close()
    return {"blocked": Bed(shape, bed.url), "ready": Bed(ready.shape, ready.url)}


def _job(group: str | None) -> NewJob:
    return NewJob(id=new_id(), queue=QUEUE, task="noop", group=group, keep=0)


def _completed(job: JobRecord) -> Finish:
    return Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED)
