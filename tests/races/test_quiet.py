"""Workers on PostgreSQL that are blocked ask for nothing, and begin at once when a limit opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from paceline import App, Limit, Rate

from ..servers.postgres import Server
from .crew import Crew, Place, until
from .program import LIMITS, make_app, micros, monotonic

WORKERS = 8
BLOCKED = 20.0
AT_MOST = 3
SETTLED = 1_500_000_000
PER = 250_000
ROUNDS = 5
STARTS = 40
LATE = 50_000

STATEMENTS = """select s.calls, s.query from pg_stat_statements s join pg_database d on d.oid = s.dbid
where s.toplevel and d.datname = 'postgres' and s.query not like '%pg_stat_statements%'"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own: every statement there is one of these workers."""
    with Server() as server:
        yield server


@pytest.fixture
def place(server: Server) -> Place:
    return Place(server.url(), "quiet")


@pytest.fixture
async def app(place: Place) -> AsyncIterator[App]:
    async with make_app(place.url, place.namespace) as app:
        yield app


@pytest.fixture
def crew(place: Place, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(place, tmp_path)
    yield crew
    crew.close()


async def test_blocked_workers_send_at_most_three_statements_in_twenty_seconds(
    app: App, crew: Crew, server: Server
) -> None:
    queue = app.queue(limits=[Limit("rarely", Rate(1, per="1h"), tasks=["rare"])])
    await queue.pause(task="quiet")
    for name in LIMITS:
        await app.hold(name, for_="1h")
    await crew.ready(crew.workers(WORKERS, "--calls"))
    for task in (*LIMITS, "everything", "rare", "quiet"):
        for group in ("north", "south"):
            await app.tasks[task].using(group=group).enqueue()
    await until(lambda: crew.notes("end"))
    await until(lambda: monotonic() - crew.notes("call")[-1]["at"] > SETTLED)
    with psycopg.connect(server.url(), autocommit=True) as sql:
        sql.execute("create extension pg_stat_statements")
        sql.execute("select pg_stat_statements_reset()")
        await asyncio.sleep(BLOCKED)
        statements = sql.execute(STATEMENTS).fetchall()
    sent = sum(calls for calls, _ in statements)
    print(f"{sent} statements of {WORKERS} blocked workers in {BLOCKED:.0f} s: {[(n, q[:60]) for n, q in statements]}")

    assert sent <= WORKERS * AT_MOST
    assert len(await queue.starts()) == 1
    await queue.resume(task="quiet")
    await until(lambda: len(crew.notes("end")) == 3)
    crew.terminate(*crew.alive)
    assert [note["insurance"] for note in crew.notes("stopped")] == [0] * WORKERS


async def test_the_next_job_starts_when_the_limit_opens(app: App, crew: Crew) -> None:
    queue = app.queue(limits=[Limit("now and then", Rate(1, per=PER / 1e6), tasks=["plain"])])
    await crew.ready(crew.workers(WORKERS))
    best = 1 << 62
    for _ in range(ROUNDS):
        before = len(await queue.starts())
        await app.tasks["plain"].enqueue_many([()] * STARTS)
        await until(lambda before=before: len(crew.notes("end")) == before + STARTS)
        times = [micros(start.at) for start in (await queue.starts())[before:]]
        late = sorted(later - at - PER for at, later in pairwise(times))
        print(f"late by: median {late[len(late) // 2]} µs, 99 % {late[-1]} µs")
        assert late[0] >= 0
        best = min(best, late[-1])
        if best <= LATE:
            break
    assert best <= LATE
