"""Nobody is told anything while nobody sleeps; whoever begins to sleep misses nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from paceline import Job, Worker
from paceline.job import NewJob
from paceline.stores.postgres import within as transactions
from paceline.stores.postgres.store import PostgresStore

CHANNEL = 'listen "paceline.ears"'
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
async def adder(url: str) -> AsyncIterator[PostgresStore]:
    """Another process, as far as the server can tell: ears of its own."""
    store = PostgresStore(url, application_name="adder")
    store.ears = type(store.ears)()
    await store.open()
    yield store
    await store.close()


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
            await connection.commit()
            began = time.monotonic()
            await until(lambda: handler.begun == 2)
            assert time.monotonic() - began < 3
    assert worker.insurance_wakeups == 0
