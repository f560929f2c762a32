"""Nobody is told anything while nobody sleeps; whoever begins to sleep misses nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest

from paceline import Job, Worker
from paceline.job import NewJob
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres import listening
from paceline.stores.postgres import within as transactions
from paceline.stores.postgres.listening import LOOK_SOON
from paceline.stores.postgres.store import PostgresStore

from ..servers.postgres import Server

CHANNEL = 'listen "paceline.wakeups"'
WITHIN = 20.0


class Handler:
    """Runs until told to end."""

    def __init__(self) -> None:
        self.begun = 0
        self.free = asyncio.Event()

    async def __call__(self, job: Job[Any]) -> None:
        self.begun += 1
        await self.free.wait()


@pytest.fixture
def url(own_server: Server) -> str:
    """A server of its own: who sleeps is counted here, and stores that other tests left open would be, too."""
    return own_server.url()


@pytest.fixture
def sql(url: str, store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def adder(stranger: Callable[[str], PostgresStore], url: str) -> PostgresStore:
    """Another process, as far as the server can tell."""
    return stranger(url)


@pytest.fixture
async def spy(url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Hears every notification, and is no listener that the store knows of."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute(CHANNEL)
    yield connection
    await connection.close()


async def heard(spy: psycopg.AsyncConnection[Any]) -> int:
    """How many notifications have come since the last look."""
    await spy.execute("select 1")  # whatever was sent before is delivered before this is answered
    return len([notice async for notice in spy.notifies(timeout=0)])


async def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def asleep(sql: psycopg.Connection[Any]) -> list[bool]:
    return [row[0] for row in sql.execute("select asleep from paceline.listener")]


async def soundly() -> None:
    """Whoever began to sleep looked once more: from now on only a notification, or the insurance, wakes it."""
    await asyncio.sleep(LOOK_SOON * 5)


def jobs(prefix: str, number: int) -> list[NewJob]:
    return [NewJob(f"{prefix}-{n}", "line", "work") for n in range(number)]


async def test_adders_tell_nobody_while_every_worker_is_busy(store, adder, spy, sql):
    handler = Handler()
    worker = Worker("line", handler, store=store, concurrency=2)
    async with worker:
        await adder.insert(jobs("first", 2))
        await until(lambda: handler.begun == 2 and asleep(sql) == [False])
        await heard(spy)

        for number in range(50):
            await adder.insert(jobs(f"more-{number}", 1))

        assert await heard(spy) == 0
        handler.free.set()
        await until(lambda: handler.begun == 52 and asleep(sql) == [True])
        await soundly()
        await heard(spy)
        await adder.insert(jobs("last", 1))
        await until(lambda: handler.begun == 53)
        assert await heard(spy) >= 1
    assert worker.insurance_wakeups == 0


async def test_a_callers_transaction_tells_whoever_sleeps_when_it_ends(store, adder, sql, url):
    handler = Handler()
    async with Worker("line", handler, store=store, concurrency=1):
        await adder.insert(jobs("first", 1))
        await until(lambda: handler.begun == 1 and asleep(sql) == [False])
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await adder.insert(jobs("late", 1), within=connection)
            handler.free.set()
            await until(lambda: asleep(sql) == [True])
            await soundly()
            began = time.monotonic()
            await connection.commit()
            await until(lambda: handler.begun == 2)
            assert time.monotonic() - began < 0.5


async def test_a_job_whose_adder_looked_too_early_is_found_when_it_is_committed(store, adder, sql, url, monkeypatch):
    fetch = transactions.fetch
    # As if a short transaction looked for sleepers, found none, and took its time to commit.
    monkeypatch.setattr(transactions, "fetch", lambda on, text, values: fetch(on, text, (*values[:-1], False)))
    handler = Handler()
    worker = Worker("line", handler, store=store, concurrency=1)
    async with worker:
        await adder.insert(jobs("first", 1))
        await until(lambda: handler.begun == 1 and asleep(sql) == [False])
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await adder.insert(jobs("early", 1), within=connection)
            handler.free.set()
            await until(lambda: asleep(sql) == [True])
            await soundly()
            await connection.commit()
            began = time.monotonic()
            await until(lambda: handler.begun == 2)
            assert time.monotonic() - began < 3
    assert worker.insurance_wakeups == 0


async def test_who_begins_to_wait_for_an_empty_queue_is_notified_of_the_end_of_its_last_job(store, adder):
    """Although this process has been listening for a while, and nobody in it wanted to know."""
    listener = store.listen(["line"])
    await adder.insert(jobs("last", 1))
    (job,) = (await adder.claim(Ask(queues=("line",), slots=1, worker="elsewhere", lease=60_000_000))).jobs
    await soundly()
    run = asyncio.create_task(Worker("line", Handler(), store=store).run(until_empty=True))
    await soundly()

    await adder.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED)])

    await asyncio.wait_for(run, 5)
    listener.close()


async def test_strange_notifications_are_ignored(store, adder, sql):
    """The channel is open to everybody who may connect."""
    handler = Handler()
    worker = Worker("line", handler, store=store, concurrency=9)
    async with worker:
        await until(lambda: asleep(sql) == [True])
        (space,) = sql.execute("select id from paceline.space").fetchone() or (0,)
        for payload in ("", "hello", "1", "1\n", "\n\n\n", f"{space}\nx\nqline", f"{space}\n0", f"{space}\n0\n\nq\n?"):
            sql.execute("select pg_notify('paceline.wakeups', %s)", [payload])
        await soundly()
        await adder.insert(jobs("last", 1))
        began = time.monotonic()
        await until(lambda: handler.begun == 1)
        assert time.monotonic() - began < 5
        handler.free.set()
    assert worker.insurance_wakeups == 0


async def test_who_sleeps_for_long_stays_registered(store, adder, sql, monkeypatch):
    monkeypatch.setattr(listening, "SAID_FOR", 1_500_000)
    monkeypatch.setattr(listening, "SAY_EVERY", 0.3)
    handler = Handler()
    async with Worker("line", handler, store=store, concurrency=1):
        await until(lambda: asleep(sql) == [True])
        await asyncio.sleep(2)
        await adder.insert(jobs("late", 1))
        began = time.monotonic()
        await until(lambda: handler.begun == 1)
        assert time.monotonic() - began < 5
        handler.free.set()


async def test_who_stood_still_for_so_long_that_it_is_no_longer_registered_looks_again(store, adder, sql, monkeypatch):
    monkeypatch.setattr(listening, "SAID_FOR", 1)
    monkeypatch.setattr(listening, "SAY_EVERY", 1.0)
    handler = Handler()
    worker = Worker("line", handler, store=store, concurrency=1)
    async with worker:
        await until(lambda: asleep(sql) == [True])
        await soundly()
        await adder.insert(jobs("unseen", 1))
        await until(lambda: handler.begun == 1)
        handler.free.set()
    assert worker.insurance_wakeups == 0
