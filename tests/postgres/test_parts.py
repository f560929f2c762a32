"""What is done to a whole queue goes through it in parts, and misses nothing."""

from __future__ import annotations

import pytest

from paceline.job import JobState, Move, NewJob
from paceline.limits import Limit, Rate
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres import queues
from paceline.stores.postgres.store import PostgresStore

JOBS = 57
RUN = 23


@pytest.fixture
async def line(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """A queue of several parts: some jobs completed, some failed, some active, some waiting, some delayed."""
    monkeypatch.setattr(queues, "PART", 10)
    await store.set_limits([Limit("tenant", Rate(1000, per="1h"), by="group")])
    await store.insert(
        [
            NewJob(f"{n}", "line", "work", group=f"g{n % 7}", delay=3_600_000_000 * (n % 4 == 3), unique=f"u{n}")
            for n in range(JOBS)
        ]
    )
    claim = await store.claim(Ask(queues=("line",), slots=RUN, worker="w", lease=60_000_000))
    ends = [Outcome.COMPLETED, Outcome.FAILED, None]
    await store.finish(
        [
            Finish(id=job.id, fence=job.fence, outcome=outcome)
            for n, job in enumerate(claim.jobs)
            if (outcome := ends[n % 3]) is not None
        ]
    )
    return store


async def counts(store: PostgresStore) -> dict[str, int]:
    return {state: number for state, number in (await store.counts("line")).items() if number}


async def test_the_line_has_jobs_in_every_state(line):
    assert await counts(line) == {"completed": 8, "failed": 8, "active": 7, "waiting": 20, "delayed": 14}


async def test_draining_removes_all_that_has_not_started(line):
    assert await line.drain("line") == 34

    assert await counts(line) == {"completed": 8, "failed": 8, "active": 7}
    assert (await line.claim(Ask(queues=("line",), slots=99, worker="w", lease=60_000_000))).jobs == []
    added = await line.insert([NewJob("56 again", "line", "work", unique="u55")])
    assert [each.existed for each in added] == [False]


@pytest.mark.parametrize(("state", "number"), [(JobState.COMPLETED, 8), (JobState.WAITING, 20), (JobState.DELAYED, 14)])
async def test_cleaning_removes_all_of_one_state(line, state, number):
    before = await counts(line)

    assert await line.clean("line", state, -1) == number

    assert await counts(line) == {each: n for each, n in before.items() if each != state}


async def test_all_that_failed_are_tried_again_once(line):
    assert await line.move_all("line", JobState.FAILED, Move.RETRY) == 8

    assert await counts(line) == {"completed": 8, "active": 7, "waiting": 28, "delayed": 14}


async def test_all_that_are_delayed_are_promoted_and_start(line):
    assert await line.move_all("line", JobState.DELAYED, Move.PROMOTE) == 14

    claim = await line.claim(Ask(queues=("line",), slots=99, worker="w", lease=60_000_000))
    assert len(claim.jobs) == 34


async def test_a_million_jobs_are_no_reason_to_hold_a_lock(line, sql):
    sql.execute("create extension if not exists pg_stat_statements")
    sql.execute("select pg_stat_statements_reset()")

    await line.drain("line")

    (calls,) = sql.execute(
        "select sum(calls) from pg_stat_statements where toplevel and query like '%%paceline.drain(%%'"
    ).fetchone()
    assert calls == 6
