"""Jobs that are committed while somebody works on their queue: whoever adds does not wait for the queue's lock.

Such a job comes right after what had come was taken in, which is the worst moment: it is there, and in no lane yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from paceline import Delay, JobNotFound
from paceline.job import JobState, Move, NewJob
from paceline.limits import Limit
from paceline.stores.interface import Ask
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import NAMES

HOUR = 3_600_000_000
GATE = 4711
"""The number of the lock that whoever has taken in everything waits for."""
WRONG = """
    select l.id, l.waiting, w.rows, a.coming from paceline.lane l
    cross join lateral (select count(*) as rows from paceline.wait w where w.lane = l.id) as w
    cross join lateral (select coalesce(sum(number), 0) as coming from paceline.arrival a
        where a.lane = l.id and a.what = 0) as a
    where l.waiting + a.coming <> w.rows"""


@contextmanager
def wrapped(sql: psycopg.Connection[Any], types: str, name: str, names: str, body: str) -> Iterator[None]:
    """A function of the schema does more than it does."""
    sql.execute(f"alter function paceline.{name}({types}) rename to {name}_itself")
    body = body.replace("GATE", f"perform pg_advisory_xact_lock_shared({GATE});").replace("OURS", NAMES.functions)
    sql.execute(f"create function paceline.{name}({names}) returns void language plpgsql as $$ begin {body} end $$")
    try:
        yield
    finally:
        sql.execute(f"drop function paceline.{name}({types})")
        sql.execute(f"alter function {NAMES.functions}.{name}_itself({types}) rename to {name}")


@pytest.fixture
def gate(sql: psycopg.Connection[Any], url: str) -> Iterator[psycopg.Connection[Any]]:
    """Whoever takes in what came stands still right after, for as long as this connection holds the gate."""
    with (
        wrapped(sql, "int", "fold", "p_queue int", "perform OURS.fold_itself(p_queue); GATE"),
        psycopg.connect(url, autocommit=True) as holder,
    ):
        yield holder


@pytest.fixture
def gate_of_lanes(sql: psycopg.Connection[Any], url: str) -> Iterator[psycopg.Connection[Any]]:
    """The same for whoever is about to move the jobs of a task to other lanes: everything was taken in just before."""
    names, body = "a int, b text, c int, d int", "GATE perform OURS.move_task_itself(a, b, c, d);"
    with (
        wrapped(sql, "int, text, int, int", "move_task", names, body),
        psycopg.connect(url, autocommit=True) as holder,
    ):
        yield holder


@pytest.fixture
async def adder(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


async def meanwhile(gate: psycopg.Connection[Any], doing: Awaitable[Any], then: Callable[[], Awaitable[Any]]) -> Any:
    """Do one thing, and the other after the first has taken in what had come; gives what the first one gives."""
    gate.execute(f"select pg_advisory_lock({GATE})")
    first = asyncio.ensure_future(doing)
    async with asyncio.timeout(20):
        while not gate.execute("select 1 from pg_locks where locktype = 'advisory' and not granted").fetchone():
            assert not first.done(), first.result()
            await asyncio.sleep(0.01)
    await then()
    gate.execute(f"select pg_advisory_unlock({GATE})")
    return await asyncio.wait_for(first, 20)


async def start_all(store: PostgresStore) -> set[str]:
    started: set[str] = set()
    while jobs := (await store.claim(Ask(queues=("line",), slots=50, worker="w", lease=HOUR))).jobs:
        started |= {job.id for job in jobs}
    return started


def jobs(prefix: str, *groups: str | None) -> list[NewJob]:
    """A job of each of two tasks in each group."""
    return [NewJob(f"{prefix} {task} {group}", "line", task, group=group) for group in groups for task in ("a", "b")]


OLD = jobs("old", None, "g")
NEW = jobs("new", None, "g", "another")
LIMIT = Limit("apart", Delay("1us"), tasks=["a"])

WHOLE: dict[str, tuple[Callable[[PostgresStore], Awaitable[Any]], int]] = {
    "drain": (lambda store: store.drain("line"), 4),
    "clean": (lambda store: store.clean("line", JobState.WAITING, -1), 4),
    "cancel": (lambda store: store.move_all("line", JobState.WAITING, Move.CANCEL), 4),
    "remove": (lambda store: store.move_all("line", JobState.WAITING, Move.REMOVE), 4),
}


@pytest.mark.parametrize("deed", WHOLE)
async def test_what_comes_while_a_queue_is_emptied_stays_and_starts(store, adder, sql, gate, deed):
    await store.insert(OLD)
    does, number = WHOLE[deed]

    assert await meanwhile(gate, does(store), lambda: adder.insert(NEW)) == number

    assert sql.execute(WRONG).fetchall() == []
    assert await start_all(store) == {job.id for job in NEW}


async def test_what_comes_while_a_queue_is_obliterated_stays_or_goes_as_a_whole(store, adder, sql, gate):
    await store.insert(OLD)

    gone = await meanwhile(gate, store.obliterate("line", False), lambda: adder.insert(NEW))

    assert sql.execute(WRONG).fetchall() == []
    left = await start_all(store)
    assert (gone, left) in ((4, {job.id for job in NEW}), (10, set()))
    await store.insert(OLD)
    assert {job.id for job in OLD} <= await start_all(store)


@pytest.mark.parametrize("move", [Move.CANCEL, Move.REMOVE])
async def test_a_job_that_comes_while_it_is_looked_for_was_not_there(store, adder, sql, gate, move):
    await store.insert(OLD)

    with pytest.raises(JobNotFound):
        await meanwhile(gate, store.move([OLD[0].id, NEW[-1].id], move), lambda: adder.insert(NEW))

    assert sql.execute(WRONG).fetchall() == []
    assert await start_all(store) == {job.id for job in OLD + NEW}


@pytest.mark.parametrize("together", [False, True])
async def test_what_comes_while_tasks_change_their_limits_is_counted_once(store, adder, sql, gate_of_lanes, together):
    """Two tasks that met the same limits meet different ones from now on, or the other way round."""
    if together:
        await store.set_limits([LIMIT])
    await store.insert(OLD)
    await store.pause("line", None, "nobody", True)  # takes in what came
    change = store.drop_limit("apart") if together else store.set_limits([LIMIT])

    await meanwhile(gate_of_lanes, change, lambda: adder.insert(NEW))

    assert await start_all(store) == {job.id for job in OLD + NEW}
    assert sql.execute(WRONG).fetchall() == []


async def test_what_comes_while_a_task_is_paused_is_counted_once(store, adder, sql, gate_of_lanes):
    await store.insert(OLD)

    await meanwhile(gate_of_lanes, store.pause("line", "a", None, True), lambda: adder.insert(NEW))

    assert await start_all(store) == {job.id for job in OLD + NEW if job.task == "b"}
    await store.pause("line", "a", None, False)
    assert await start_all(store) == {job.id for job in OLD + NEW if job.task == "a"}
    assert sql.execute(WRONG).fetchall() == []


async def test_a_lane_that_counts_a_job_too_many_holds_up_nobody(store, sql):
    """It never should; but a claim that looked for that job for ever would keep its locks as long."""
    await store.insert(OLD)
    await store.set_limits([LIMIT])
    assert len((await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=HOUR))).jobs) == 1
    sql.execute("update paceline.lane set waiting = waiting + 1")
    sql.execute("delete from paceline.wait where lane = (select lane from paceline.wait order by place limit 1)")

    claims = [store.claim(Ask(queues=("line",), slots=slots, worker="w", lease=HOUR)) for slots in (1, 1, 50)]
    started = [job.id for claim in await asyncio.wait_for(asyncio.gather(*claims), 20) for job in claim.jobs]

    assert len(started) == 2
