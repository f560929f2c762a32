"""A claim touches as many pages with many waiting jobs and blocked groups as with few."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from statistics import median
from typing import Any

import pytest

from paceline.job import JobRecord, NewJob
from paceline.limits import Limit, Rate
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres.store import PostgresStore
from paceline.stores.postgres.texts import CLAIM

OPEN = "g0"
WIDE = Rate(1_000_000, per="1s")
LIMITS = [Limit("tenant", Rate(1, per="1h"), by="group", overrides={OPEN: WIDE})]
EACH = 3
FEW, MANY = 200, 3000
AT_ONCE = 100


class Bed:
    """Groups with a few jobs each; the pages of its claims are counted."""

    def __init__(self, store: PostgresStore, groups: int) -> None:
        self.store = store
        self.groups = groups
        self.pages: list[int] = []
        self._ids = count()
        self._rows = store.calls.rows
        store.calls.rows = self._counted

    async def _counted(self, query: str, *values: Any, **how: Any) -> list[tuple[Any, ...]]:
        if query is CLAIM:
            ((plan,),) = await self._rows(f"explain (analyze, buffers, format json) {query}", *values)
            self.pages.append(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])
        # The same claim once more is only given again.
        return await self._rows(query, *values, **how)

    async def add(self, *groups: str) -> None:
        await self.store.insert([NewJob(f"{next(self._ids)}", "line", "work", group=group) for group in groups])

    async def fill(self) -> None:
        await self.store.set_limits(LIMITS)
        for first in range(0, self.groups, 1000):
            numbers = range(first, min(first + 1000, self.groups))
            await self.add(*(f"g{number}" for number in numbers for _ in range(EACH)))

    async def claim(self, slots: int) -> list[JobRecord]:
        """Claim and finish."""
        ask = Ask(queues=("line",), slots=slots, worker="w", lease=60_000_000, claim_id=f"claim {next(self._ids)}")
        jobs = (await self.store.claim(ask)).jobs
        await self.store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in jobs])
        return jobs

    async def block(self) -> float:
        """Let every group start once, which blocks it for an hour; the pages of a usual claim on the way."""
        started: set[str | None] = set()
        used = []
        while len(started) < self.groups:
            jobs = await self.claim(min(AT_ONCE, self.groups - len(started)))
            started.update(job.group for job in jobs)
            if len(jobs) == AT_ONCE:
                used.append(self.pages[-1])
        return median(used)

    async def one(self) -> float:
        """The pages of a claim of the only group that may start."""
        used = []
        for _ in range(9):
            await self.add(OPEN)
            assert {job.group for job in await self.claim(1)} == {OPEN}
            used.append(self.pages[-1])
        return median(used)


@pytest.fixture
async def other(url: str):
    """A second schema beside the first: both are empty when their plans are made."""
    store = PostgresStore(url, schema="many")
    await store.open()
    yield store
    await store.calls.rows("drop schema many cascade")
    await store.close()


async def test_a_claim_touches_as_few_pages_when_many_groups_are_blocked(store, other):
    few, many = Bed(store, FEW), Bed(other, MANY)
    for bed in (few, many):
        await bed.fill()
    blocking = [await bed.block() for bed in (few, many)]
    one = [await bed.one() for bed in (few, many)]

    print(f"pages of a claim of {AT_ONCE} that blocks as many groups: {blocking}; of one where all are blocked: {one}")
    assert blocking[1] <= 2 * blocking[0]
    assert one[1] <= 2 * one[0]


LANES = """select sum(idx_tup_fetch)::bigint from pg_stat_user_tables
where schemaname = $1 and relname in ('lane', 'grp', 'class', 'meter', 'key', 'wait')"""


class Visits:
    """How many rows of lanes, groups and keys a step of the store visits, whatever index it goes by."""

    def __init__(self, store: PostgresStore, schema: str) -> None:
        self.store = store
        self.schema = schema

    async def now(self) -> int:
        await self.store.calls.rows("select pg_stat_force_next_flush()")
        await self.store.calls.rows("select pg_stat_clear_snapshot()")
        return int(await self.store.calls.value(LANES, self.schema))

    async def of(self, step: Callable[[], Awaitable[object]]) -> float:
        used = []
        for _ in range(5):
            before = await self.now()
            await step()
            used.append(await self.now() - before)
        return median(used)


COSTLY = [Limit("tenant", Rate(2, per="1h"), by="group"), Limit("all", Rate(10**9, per="1s"))]


async def visits(store: PostgresStore, schema: str, groups: int) -> dict[str, float]:
    """Rows that steps visit which are decided job by job, when each start fills the key of its group."""
    numbers = count()

    def job(cost: int = 1, **more: Any) -> NewJob:
        return NewJob(f"j{next(numbers)}", "line", "work", cost=cost, **more)

    def ask(**more: Any) -> Ask:
        return Ask(queues=("line",), slots=1, worker="w", lease=60_000_000, **more)

    async def claim(**more: Any) -> None:
        assert len((await store.claim(ask(**more))).jobs) == 1

    await store.set_limits(COSTLY)
    await store.insert([job(2, group=f"g{place}") for place in range(groups) for _ in range(2)])
    taken = 0
    while taken < 4:  # the first ones take in what was added
        taken += len((await store.claim(ask())).jobs)
    seen = Visits(store, schema)
    return {
        "a claim of a costly job": await seen.of(lambda: claim()),
        "a claim with little room": await seen.of(lambda: claim(room=2)),
        "a claim under a limiter too": await seen.of(lambda: claim(also=("all",))),
        "a job for a bounded group": await seen.of(lambda: store.insert([job(group="g1", group_max_size=999)])),
    }


async def test_what_is_decided_job_by_job_visits_as_few_rows_when_there_are_many_groups(store, other):
    few, many = await visits(store, "paceline", 60), await visits(other, "many", 1500)

    print(f"rows visited with few groups: {few}; with many: {many}")
    assert {name: many[name] <= 2 * few[name] for name in few} == dict.fromkeys(few, True)
