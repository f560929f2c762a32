"""Reads take no lock, write nothing, and cost what they answer, however much there is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from paceline.errors import ConfigError
from paceline.job import JobState, Move, NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores.interface import Ask, Filter, Finish, Outcome, Override, WorkerRecord
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server

LIMITS = [
    Limit("all", Rate(5, per="1h") & Concurrency(4), queues=["line"]),
    Limit("tenant", Rate(2, per="1h"), by="group"),
    Limit("unused", Concurrency(3), tasks=["never"]),
]
READS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "usage": lambda store: store.usage("all", None),
    "usage of a key that counted nothing": lambda store: store.usage("unused", None),
    "usage of a group": lambda store: store.usage("tenant", "a"),
    "usage of a group that is not there": lambda store: store.usage("tenant", "nobody"),
    "usage of all groups": lambda store: store.usage("tenant", None),
    "counts": lambda store: store.counts("line"),
    "queues": lambda store: store.queues(),
    "find": lambda store: store.find(Filter(queue="line")),
    "find a state": lambda store: store.find(Filter(queue="line", state=JobState.WAITING, newest_first=True)),
    "get": lambda store: store.get(["0", "1", "none"]),
    "standing": lambda store: store.standing("7"),
    "standing of one that is over": lambda store: store.standing("0"),
    "limits": lambda store: store.limits(),
    "overrides": lambda store: store.overrides(),
    "starts": lambda store: store.starts("line", None),
    "workers": lambda store: store.workers(),
}


def ask(number: int, slots: int = 3) -> Ask:
    return Ask(queues=("line",), slots=slots, worker="w", lease=60_000_000, claim_id=f"{number}")


async def fill(store: PostgresStore) -> None:
    await store.set_limits(LIMITS)
    await store.insert([NewJob(f"{n}", "line", "work", group="ab"[n % 2] if n % 3 else None) for n in range(12)])
    claim = await store.claim(ask(0))
    await store.finish([Finish(id=j.id, fence=j.fence, outcome=Outcome.COMPLETED) for j in claim.jobs[:2]])
    await store.insert([NewJob("new", "line", "other", group="c"), NewJob("later", "line", "work", delay=60_000_000)])
    await store.register(WorkerRecord(id="w", queues=("line",)))


@pytest.fixture
async def reader(store):
    """A store whose transactions are all read-only, on what `store` left."""
    await fill(store)
    reader = PostgresStore(server().url(), migrate=False, options="-c default_transaction_read_only=on")
    yield reader
    await reader.close()


@pytest.mark.parametrize("name", READS)
async def test_a_read_works_in_a_read_only_transaction_and_answers_the_same(store, reader, name):
    def timeless(answer: object) -> str:
        return "".join(letter for letter in repr(answer) if not letter.isdigit())

    assert timeless(await READS[name](reader)) == timeless(await READS[name](store))


async def test_a_read_that_names_the_wrong_group_is_refused_as_before(reader):
    for limit, group in (("all", "a"), ("none", None)):
        with pytest.raises(ConfigError):
            await reader.usage(limit, group)


async def test_whoever_may_only_read_sees_an_override_until_somebody_ends_it(store, reader):
    await store.override(Override(limit="all", kind=Rate(9, per="1h")), 50_000)
    await asyncio.sleep(0.1)

    assert (await reader.usage("all", None)).allowed == 9
    assert (await reader.standing("7")).keys[0].allowed == 9
    assert (await store.usage("all", None)).allowed == 5
    assert (await reader.usage("all", None)).allowed == 5


KEPT = """select count(*) from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = %s and l.mode <> 'AccessShareLock'"""


async def test_a_claim_is_not_delayed_by_reads_whose_transaction_stays_open(store, sql):
    await fill(store)
    await store.set_limits([Limit("all", Rate(500, per="1h") & Concurrency(400), queues=["line"])])
    with psycopg.connect(server().url()) as holding:
        for name in ("usage", "usage of all groups", "queues", "counts", "standing"):
            await through(holding, store, READS[name])
        pid = holding.info.backend_pid
        assert sql.execute(KEPT, (pid,)).fetchone() == (0,)
        began = time.monotonic()
        claim = await asyncio.wait_for(store.claim(ask(1)), 5)

        assert claim.jobs
        assert time.monotonic() - began < 1


async def through(connection: psycopg.Connection[Any], store: PostgresStore, read: Callable[..., Any]) -> None:
    """Let a read of the store run on this connection, inside its transaction."""
    rows = store.calls.rows

    async def here(query: str, *values: Any, **_how: Any) -> list[tuple[Any, ...]]:
        with psycopg.RawCursor(connection) as cursor:
            return cursor.execute(store.calls.text(query), values, binary=True).fetchall()

    store.calls.rows = here
    try:
        await read(store)
    finally:
        store.calls.rows = rows


# counts that are kept beside what they count

IN_LANES = """select l.class, sum(l.waiting)::bigint from paceline.lane l join paceline.queue q on q.id = l.queue
    where q.name = 'line' and l.waiting > 0 group by 1 order by 1"""
KEPT_BY_CLASS = """select u.class, u.waiting from paceline.queue_state s join paceline.queue q on q.id = s.queue,
    unnest(s.class_ids, s.class_waiting) as u (class, waiting) where q.name = 'line' and u.waiting <> 0 order by 1"""
GROUPS = """select
    (select count(distinct l.grp) from paceline.lane l where l.queue = s.queue and l.waiting > 0), s.groups,
    (select coalesce(sum(l.waiting), 0) from paceline.lane l where l.queue = s.queue), s.waiting
    from paceline.queue_state s join paceline.queue q on q.id = s.queue where q.name = 'line'"""
FINISHED = """select array[count(*) filter (where d.state = 4), count(*) filter (where d.state = 5),
    count(*) filter (where d.state = 6)] from paceline.done d"""
KEPT_FINISHED = "select array[sum(completed), sum(failed), sum(cancelled)]::bigint[] from paceline.tally"


def check_counts(sql: psycopg.Connection[Any], after: str) -> None:
    assert sql.execute(KEPT_BY_CLASS).fetchall() == sql.execute(IN_LANES).fetchall(), after
    there, kept, waiting, kept_waiting = sql.execute(GROUPS).fetchone() or ()
    assert (kept, kept_waiting) == (there, waiting), after
    (finished,) = sql.execute(KEPT_FINISHED).fetchone() or ()
    assert [n or 0 for n in finished] == (sql.execute(FINISHED).fetchone() or ())[0], after


async def test_what_is_counted_is_what_there_is(store, sql):
    def new(first: int, number: int, **more: Any) -> list[NewJob]:
        names = range(first, first + number)
        return [NewJob(f"{n}", "line", f"task {n % 3}", group=f"g{n % 7}" if n % 4 else None, **more) for n in names]

    async def run(number: int, *outcomes: Outcome) -> None:
        claim = await store.claim(ask(number, 20))
        ends = [
            Finish(id=job.id, fence=job.fence, outcome=outcomes[place % len(outcomes)], error="no")
            for place, job in enumerate(claim.jobs)
        ]
        await store.finish(ends)

    await store.set_limits([Limit("one", Rate(1000, per="1h"), tasks=["task 1"])])
    await store.insert(new(0, 90))
    # While somebody waits for an end, also what is not kept is written for a moment.
    sql.execute("insert into paceline.waiter select id, 'none', '', 9000000000000000000 from paceline.space")
    steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("a claim and ends of every kind", lambda: run(1, Outcome.COMPLETED, Outcome.FAILED, Outcome.RETURNED)),
        ("jobs that are not kept", lambda: store.insert(new(100, 20, keep=0, priority=-1))),
        ("their end", lambda: run(2, Outcome.COMPLETED, Outcome.FAILED)),
        ("cancel", lambda: store.move(["88", "89", "77"], Move.CANCEL)),
        ("retry", lambda: store.move_all("line", JobState.FAILED, Move.RETRY)),
        ("a claim", lambda: run(3, Outcome.COMPLETED)),
        ("remove", lambda: store.move(["88", "60", "61"], Move.REMOVE)),
        ("a task is paused and has a class of its own", lambda: store.pause("line", "task 2", None, True)),
        ("another limit", lambda: store.set_limits([Limit("two", Rate(1000, per="1h"), tasks=["task 0"])])),
        ("and goes", lambda: store.drop_limit("two")),
        ("a claim between", lambda: run(4, Outcome.FAILED)),
        ("resumed", lambda: store.pause("line", "task 2", None, False)),
        ("clean", lambda: store.clean("line", JobState.COMPLETED, 0)),
        ("more with an end of their keep", lambda: store.insert(new(200, 20, keep=1, priority=-1))),
        ("their claim", lambda: run(5, Outcome.COMPLETED)),
        ("prune", lambda: store.prune()),
        ("the last of single groups", lambda: run(6, Outcome.COMPLETED)),
        ("drain", lambda: store.drain("line")),
        ("some more", lambda: store.insert(new(300, 20))),
        ("of which one is claimed", lambda: store.claim(ask(7, 1))),
        ("obliterate", lambda: store.obliterate("line", True)),
    ]
    for after, step in steps:
        await step()
        check_counts(sql, after)


async def test_the_rows_that_count_finished_jobs_stay_few(store, sql):
    await store.insert([NewJob(f"{n}", "line", "work") for n in range(600)])
    for number in range(600):
        claim = await store.claim(ask(number, 1))
        await store.finish([Finish(id=j.id, fence=j.fence, outcome=Outcome.COMPLETED) for j in claim.jobs])

    assert (await store.counts("line"))["completed"] == 600
    assert sql.execute("select count(*) <= 257 from paceline.tally").fetchone() == (True,)
    await store.prune()
    assert sql.execute("select completed, base from paceline.tally").fetchall() == [(600, True)]


VISITED = """select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint
    from pg_stat_user_tables where schemaname = 'paceline'"""
OVERVIEW = ("queues", "counts", "usage", "usage of a group", "usage of all groups")
PAGES = {
    f"{state} {newest}": Filter(queue="line", state=state, limit=10, newest_first=newest)
    for state in (JobState.COMPLETED, JobState.FAILED, JobState.ACTIVE)
    for newest in (False, True)
}


async def visited(store: PostgresStore, read: Callable[[PostgresStore], Awaitable[object]]) -> int:
    """How many rows a read visits, of all tables."""

    async def now() -> int:
        await store.calls.rows("select pg_stat_force_next_flush()")
        await store.calls.rows("select pg_stat_clear_snapshot()")
        return int(await store.calls.value(VISITED))

    # What other sessions did is counted when they say so: the least of several is the read's own.
    seen = []
    for _ in range(5):
        before = await now()
        await read(store)
        seen.append(await now() - before)
    return min(seen)


async def test_a_read_visits_no_more_rows_where_there_is_more(store):
    await store.set_limits([Limit("all", Rate(10**6, per="1h")), Limit("tenant", Rate(10**6, per="1h"), by="group")])
    found: list[dict[str, int]] = []
    done = 0
    for size in (100, 3000):
        while done < size:
            await store.insert([NewJob(f"done {done + n}", "line", "work", group="a") for n in range(100)])
            claim = await store.claim(ask(done, 100))
            ends = [Outcome.FAILED if place < 2 else Outcome.COMPLETED for place in range(len(claim.jobs))]
            await store.finish(
                [Finish(id=j.id, fence=j.fence, outcome=o) for j, o in zip(claim.jobs, ends, strict=True)]
            )
            done += len(claim.jobs)
        await store.insert([NewJob(f"{size} {n}", "line", "work", group=f"g{n}") for n in range(size)])
        await store.calls.rows("select paceline.fold(id) from paceline.queue")
        await store.claim(ask(-size, 5))
        reads = {name: READS[name] for name in OVERVIEW}
        reads |= {name: lambda store, page=page: store.find(page) for name, page in PAGES.items()}
        found.append({name: await visited(store, read) for name, read in reads.items()})

    print(f"rows visited at first, and with 30 times as much: {found}")
    small, large = found
    assert {name: large[name] for name in large if large[name] > small[name] + 200} == {}
