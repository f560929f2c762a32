"""Somebody holds a transaction open while jobs pass: what a claim costs at first, and when nothing was vacuumed."""

from __future__ import annotations

import asyncio
import itertools
import time
from statistics import median, quantiles
from typing import Any

from bench.cases import Case, Size
from bench.collector import settle
from bench.places import Place
from bench.report import Table, figure
from paceline import Concurrency, Limit, Rate, open_store
from paceline.job import NewJob
from paceline.options import new_id
from paceline.stores.interface import Ask, Finish, Outcome

ROUNDS = 1
"""It takes a minute, and compares with itself."""
PACE = 0.005
"""Seconds from one job to the next: 200 a second."""
GROUPS = 20
BACKLOG = 200
WARM_UP = 400
LIMITS = {
    "plain": [],
    "limit": [Limit("service", Rate(1_000_000, per="1s") & Concurrency(1_000), tasks=["noop"])],
}


def cases(size: Size) -> list[Case]:
    """`n` is for how many seconds the transaction is held; the first sixth is set beside the last."""
    return [Case("held", "postgres", f"ours:{shape}", 6 if size.quick else 60) for shape in LIMITS]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    import psycopg

    shape = case.spec.partition(":")[2]
    store = open_store(place.url)
    await store.open()
    await store.set_limits(LIMITS[shape])
    numbers = itertools.count()

    async def add(count: int) -> None:
        groups = [f"g{next(numbers) % GROUPS}" for _ in range(count)]
        await store.insert([NewJob(new_id(), "held", "noop", group=group, keep=0, fresh=True) for group in groups])

    ended: list[Finish] = []

    async def pass_one() -> float:
        """One job comes, one is claimed, the one before it ends; gives the milliseconds of the claim."""
        await add(1)
        ask = Ask(queues=("held",), slots=1, worker="bench", lease=60_000_000, claim_id=new_id())
        begin = time.perf_counter()
        claim = await store.claim(ask, ended)
        took = time.perf_counter() - begin
        ended[:] = [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in claim.jobs]
        assert len(claim.jobs) == 1, claim
        return took * 1e3

    await add(BACKLOG)
    for _ in range(WARM_UP):
        await pass_one()
    settle()
    took: list[tuple[float, float]] = []
    with psycopg.connect(place.url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("create temporary table mine (number int)")
        start = time.perf_counter()
        for number in itertools.count(1):
            at = time.perf_counter() - start
            if at >= case.n:
                break
            took.append((at, await pass_one()))
            await asyncio.sleep(max(0.0, start + number * PACE - time.perf_counter()))
        other.rollback()
    await store.close()
    edge = case.n / 6
    first = [ms for at, ms in took if at < edge]
    last = [ms for at, ms in took if at >= case.n - edge]
    return {
        "label": f"ours, {'a shared limit' if shape == 'limit' else 'no limits'}",
        "jobs": len(took) / case.n,
        "first": median(first),
        "first99": quantiles(first, n=100)[98],
        "last": median(last),
        "last99": quantiles(last, n=100)[98],
    }


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["a transaction is held open: one claim, ms", "jobs/s", "first sixth", "p99", "last sixth", "p99"]
    columns = ("jobs", "first", "first99", "last", "last99")
    rows = [[runs[0]["label"], *(figure(runs, name) for name in columns)] for runs in results.values()]
    return [Table(head, rows)]
