"""Somebody holds a transaction open: what cannot be vacuumed meanwhile is not visited, so that claims stay as cheap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from paceline.job import NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores.interface import Ask, Claim, Finish, Outcome
from paceline.stores.postgres.store import PostgresStore
from paceline.stores.postgres.texts import CLAIM

GROUPS = 20
CLAIMS = 400
WIDE = Rate(1_000_000, per="1s") & Concurrency(1000)
LIMITS = [Limit("service", WIDE, tasks=["work"]), Limit("tenant", WIDE, by="group")]
BINDING = [Limit("tenant", Rate(1, per="20ms") & Concurrency(1), by="group")]

DEFINITIONS = """select pg_get_functiondef(p.oid) from pg_proc p
where p.pronamespace = to_regnamespace(%s) and p.prosrc like '%%version desc limit 1%%'"""


class Line:
    """A queue with a backlog in a few groups: one job comes, one is claimed, the one before it ends."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._numbers = count()
        self._ends: list[Finish] = []

    async def add(self, number: int) -> None:
        await self.store.insert(
            [NewJob(f"{n}", "line", "work", group=f"g{n % GROUPS}") for n in islice(self._numbers, number)]
        )

    async def step(self) -> Claim:
        await self.add(1)
        ask = Ask(queues=("line",), slots=1, worker="w", lease=60_000_000, claim_id=f"{next(self._numbers)}")
        claim = await self.store.claim(ask, self._ends)
        self._ends = [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in claim.jobs]
        return claim

    async def buffers(self) -> float:
        """How many pages a claim touches, all that its functions do included."""
        touched: list[int] = []
        rows = self.store.calls.rows

        async def counted(query: str, *values: Any, **how: Any) -> Sequence[tuple[Any, ...]]:
            if query is not CLAIM:
                return await rows(query, *values, **how)
            # Asked under its own number first and counted, then once more: the same claim is only given again.
            ((plan,),) = await rows(f"explain (analyze, buffers, format json) {query}", *values)
            touched.append(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])
            return await rows(query, *values, **how)

        self.store.calls.rows = counted
        for _ in range(9):
            await self.step()
        self.store.calls.rows = rows
        return median(touched)


@pytest.mark.parametrize("limits", [[], LIMITS, BINDING], ids=["no limits", "limits", "limits that bind"])
async def test_a_claim_touches_no_more_pages_the_longer_somebody_holds_a_transaction_open(store, sql, limits):
    first, last = await before_and_after(store, sql, limits)

    print(f"pages of a claim: {first} at first, {last} after {CLAIMS} claims that nobody could vacuum")
    assert last <= 2 * first


async def test_rows_that_are_looked_for_from_the_oldest_on_are_noticed(url, sql):
    mutant = PostgresStore(url, schema="forwards")
    await mutant.open()
    for (text,) in sql.execute(DEFINITIONS, (mutant.names.functions,)).fetchall():
        sql.execute(text.replace("version desc limit 1", "version limit 1"))

    first, last = await before_and_after(mutant, sql, [])

    await mutant.close()
    sql.execute(f"drop schema forwards cascade; drop schema {mutant.names.functions} cascade")
    assert last > 2 * first


async def before_and_after(
    store: PostgresStore, sql: psycopg.Connection[Any], limits: list[Limit]
) -> tuple[float, float]:
    """Pages of a claim when somebody has just begun a transaction, and after many claims."""
    await store.set_limits(limits)
    line = Line(store)
    await line.add(200)
    for _ in range(CLAIMS // 4):
        await line.step()
    with psycopg.connect(sql.info.dsn) as other:
        other.isolation_level = IsolationLevel.REPEATABLE_READ
        other.execute("create temporary table mine (number int)")
        first = await line.buffers()
        for _ in range(CLAIMS):
            await line.step()
        last = await line.buffers()
        other.rollback()
    return first, last
