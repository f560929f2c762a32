"""A thousand tasks with a limit each: what a step visits grows with what it needs, never with limits times tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores.interface import Ask
from paceline.stores.postgres.store import PostgresStore

FEW, MANY = 10, 1000
SLOTS = 5
KIND = Rate(1000, per="1h")

VISITED = """select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
where schemaname = $1"""


@pytest.fixture
async def other(url: str):
    """A second schema beside the first: both are empty when their plans are made."""
    store = PostgresStore(url, schema="many_limits")
    await store.open()
    yield store
    await store.calls.rows("drop schema many_limits cascade")
    await store.close()


class Bed:
    """A store with so many limits of one task each; the rows that its steps visit are counted by table."""

    def __init__(self, store: PostgresStore, schema: str, limits: int) -> None:
        self.store = store
        self.schema = schema
        self.limits = limits
        self._ids = count()

    async def _now(self) -> dict[str, int]:
        await self.store.calls.rows("select pg_stat_force_next_flush()")
        await self.store.calls.rows("select pg_stat_clear_snapshot()")
        return {name: int(number) for name, number in await self.store.calls.rows(VISITED, self.schema)}

    async def visited(self, step: Callable[[], Awaitable[object]]) -> dict[str, int]:
        before = await self._now()
        await step()
        return {name: number - before[name] for name, number in (await self._now()).items()}

    async def declare(self, *extra: Limit) -> None:
        every = [Limit(f"of {number}", KIND, tasks=[f"task {number}"]) for number in range(self.limits)]
        await self.store.set_limits([*every, *extra])

    async def add(self, number: int) -> None:
        jobs = [NewJob(f"{next(self._ids)}", "line", f"task {place % self.limits}") for place in range(number)]
        await self.store.insert(jobs)

    async def claim(self) -> None:
        ask = Ask(queues=("line",), slots=SLOTS, worker="w", lease=60_000_000, claim_id=f"{next(self._ids)}")
        while len((await self.store.claim(ask)).jobs) < SLOTS:  # what was added is taken in piece by piece
            pass

    async def steps(self) -> dict[str, dict[str, int]]:
        await self.declare()
        await self.add(2 * MANY)
        found = {"the first claim": await self.visited(self.claim)}
        await self.claim()
        found["an add"] = await self.visited(lambda: self.add(1))
        await self.claim()
        found["a claim"] = await self.visited(self.claim)
        found["explain"] = await self.visited(lambda: self.store.standing(f"{MANY + 500}"))
        found["another limit"] = await self.visited(lambda: self.declare(Limit("more", KIND, tasks=["task 1"])))
        return found


async def test_what_a_step_visits_grows_with_what_it_needs(store, other):
    few = await Bed(store, "paceline", FEW).steps()
    many = await Bed(other, "many_limits", MANY).steps()
    rows = {name: (sum(few[name].values()), sum(many[name].values())) for name in few}

    print(f"rows visited with {FEW} and with {MANY} limits of one task each: {rows}")
    assert rows["an add"][1] <= rows["an add"][0] + 10
    for name in ("the first claim", "a claim", "explain", "another limit"):
        assert rows[name][1] <= rows[name][0] + 40 * (MANY - FEW), name
    assert many["explain"]["lim"] <= 10
    # Beside the head of each class only jobs that may come to their turn in this claim are looked at.
    assert many["a claim"]["wait"] <= MANY + 2 * (8 * SLOTS + 64)
