"""What one claim costs with few and with very many waiting jobs and groups, ready and blocked; and in long windows.

All sizes of a store stand side by side and are timed in turn. In memory and on SQLite it is processor time, because a
claim there waits for nothing; on the servers it is the time of a whole call.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

from bench.cases import Case, Size
from bench.collector import settle
from bench.places import Place
from bench.report import Table, laps, short, spread
from bench.systems import STORES
from paceline import Limit, Rate, Store, open_store
from paceline.job import JobRecord, NewJob
from paceline.options import new_id
from paceline.stores.interface import Ask, Claim, Finish, Outcome, Target

ROUNDS = 1
"""The rounds are inside, because large stores take long to build."""
LAPS = 5
QUEUE = "flat"
OPEN = "g0"
HOUR = 3_600_000_000
WARM_UP = 20
BULK = 1_000
LADDER = ((1_000, 10), (10_000, 1_000), (100_000, 10_000), (1_000_000, 100_000))
"""Waiting jobs, and in how many groups."""
WINDOWS = (10, 1_000, 100_000)
QUICK_LADDER = ((1_000, 10), (10_000, 1_000))
ROOM = 5_000
"""What the laps themselves start in a window, and more."""
FREE = Rate(1_000, per="1ms")
"""Does not bind, but is at work."""
CLOCKS: dict[str, Callable[[], int]] = {"memory": time.thread_time_ns, "sqlite": time.process_time_ns}


def cases(size: Size) -> list[Case]:
    """`n` is how many claims make a lap."""
    specs = ("depth:quick",) if size.quick else ("depth", "window")
    return [Case("flat", store, spec, 30 if size.quick else 200) for store in STORES for spec in specs]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    what, _, quick = case.spec.partition(":")
    now = CLOCKS.get(case.store, time.perf_counter_ns)
    if what == "window":
        return {"beds": await _windows(place, WINDOWS, case.n, now)}
    return {"beds": await _depths(place, QUICK_LADDER if quick else LADDER, case.n, now)}


class Bed:
    """A store of one size; whatever a claim took out is put back, so that all claims meet the same size."""

    def __init__(self, place: Place, name: str) -> None:
        if place.url.startswith("sqlite"):
            self.store: Store = open_store(place.url.replace("jobs.db", f"{name}.db"), durability="normal")
        else:
            self.store = open_store(place.url, namespace=name)
        self._claims = itertools.count()

    async def limit(self, kind: Rate, **options: Any) -> None:
        await self.store.open()
        await self.store.set_limits([Limit("tenant", kind, **options)])

    async def fill(self, jobs: int, groups: int) -> None:
        each = jobs // groups
        for first in range(0, jobs, BULK):
            await self.store.insert([_job(f"g{n // each}") for n in range(first, min(first + BULK, jobs))])
            await self.cycle(1)  # as in a queue that is at work: a claim files what arrived, so much at a time

    async def block(self) -> None:
        """Every group but one has its one start, until only that one starts jobs."""
        done = False
        while not done:
            claim = await self.cycle(500)
            # A claim looks at so many groups at most, and then wants to be asked again at once.
            done = {job.group for job in claim.jobs} == {OPEN} and claim.ask_again_at > claim.now

    async def cycle(self, slots: int) -> Claim:
        """Claim, finish, put back."""
        claim = await self.store.claim(self._ask(slots))
        await self._put_back(claim.jobs)
        return claim

    async def lap(self, slots: int, claims: int, now: Callable[[], int]) -> dict[str, float]:
        """Microseconds of one claim."""
        for _ in range(WARM_UP):
            await self.cycle(slots)
        took = []
        for _ in range(claims):
            ask = self._ask(slots)
            start = now()
            claim = await self.store.claim(ask)
            while not claim.jobs and claim.ask_again_at == claim.now:  # it filed what arrived: part of the price
                claim = await self.store.claim(self._ask(slots))
            took.append(now() - start)
            assert len(claim.jobs) == slots, claim
            await self._put_back(claim.jobs)
        return {"p50": median(took) / 1e3, "p99": quantiles(took, n=100)[98] / 1e3}

    async def _put_back(self, jobs: list[JobRecord]) -> None:
        ends = [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in jobs]
        assert not await self.store.finish(ends)
        await self.store.insert([_job(job.group) for job in jobs])

    def _ask(self, slots: int) -> Ask:
        return Ask(queues=(QUEUE,), slots=slots, worker="bench", lease=HOUR, claim_id=str(next(self._claims)))


async def _depths(place: Place, ladder: Any, claims: int, now: Callable[[], int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for state in ("ready", "all but one blocked"):
        beds = {}
        for jobs, groups in ladder:
            bed = beds[f"{jobs:,} jobs in {groups:,} groups, {state}"] = Bed(place, f"{state.split()[-1]}{jobs}")
            if state == "ready":
                await bed.limit(FREE, by="group")
                await bed.fill(jobs, groups)
            else:
                await bed.limit(Rate(1, per="1h"), by="group", overrides={OPEN: FREE})
                await bed.fill(jobs, groups)
                await bed.block()
        found |= await _laps(beds, claims, now)
        for (jobs, _), bed in zip(ladder, beds.values(), strict=True):
            counts = await bed.store.counts(QUEUE)
            assert counts["waiting"] == jobs, counts
            await bed.store.close()
    return found


async def _windows(place: Place, windows: Any, claims: int, now: Callable[[], int]) -> dict[str, Any]:
    """Windows of an hour with so many starts in them, each of its own instant; those of the few laps join them."""
    beds = {}
    for starts in windows:
        bed = beds[f"{starts:,} starts in the window"] = Bed(place, f"window{starts}")
        await bed.limit(Rate(max(2 * starts, ROOM), per="1h"))
        await asyncio.gather(*(_start(bed.store, starts // 10) for _ in range(10)))
        await bed.fill(1_000, 10)
    found = await _laps(beds, min(claims, 40), now)
    for bed in beds.values():
        await bed.store.close()
    return found


async def _start(store: Store, times: int) -> None:
    for _ in range(times):
        grant = await store.acquire([Target("tenant")], new_id(), HOUR)
        assert grant.granted


async def _laps(beds: dict[str, Bed], claims: int, now: Callable[[], int]) -> dict[str, Any]:
    """In turn, so that all sizes meet the same moments."""
    settle()
    found: dict[str, Any] = {name: {"1": [], "10": []} for name in beds}
    for _ in range(LAPS if claims > 100 else 2):
        for name, bed in beds.items():
            for slots in (1, 10):
                found[name][str(slots)].append(await bed.lap(slots, claims, now))
    return found


def _job(group: str | None) -> NewJob:
    return NewJob(id=new_id(), queue=QUEUE, task="noop", group=group, keep=0)


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["one claim, µs", "1 slot", "p99", "10 slots", "p99", "spread"]
    rows = []
    for key, runs in results.items():
        for name in runs[0]["beds"]:
            numbers = [laps(runs, name, slots, column) for slots in ("1", "10") for column in ("p50", "p99")]
            rows.append(
                [f"{key.split()[0]}: {name}", *(short(median(each)) for each in numbers), f"{spread(numbers[0]):.0%}"]
            )
    return [Table(head, rows)]
