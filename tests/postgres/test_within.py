"""Transactional enqueue: a job is seen if and only if the caller commits, and no claim waits for the caller."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from paceline import Queue
from paceline.errors import ConfigError, GroupFull
from paceline.job import NewJob
from paceline.stores.interface import Ask

from ..servers.fresh import server


def ask(slots: int = 10) -> Ask:
    return Ask(queues=("line",), slots=slots, worker="worker", lease=60_000_000)


async def claimed(store: Any) -> list[str]:
    return [job.id for job in (await asyncio.wait_for(store.claim(ask()), 5)).jobs]


# what callers have in their hands


@asynccontextmanager
async def psycopg_sync() -> AsyncIterator[tuple[Any, Callable[[bool], Awaitable[None]]]]:
    with psycopg.connect(server().url()) as connection:

        async def end(commit: bool) -> None:
            connection.commit() if commit else connection.rollback()

        yield connection, end


@asynccontextmanager
async def psycopg_async() -> AsyncIterator[tuple[Any, Callable[[bool], Awaitable[None]]]]:
    async with await psycopg.AsyncConnection.connect(server().url()) as connection:

        async def end(commit: bool) -> None:
            await (connection.commit() if commit else connection.rollback())

        yield connection, end


def alchemy_url() -> str:
    return server().url().replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def alchemy_connection() -> AsyncIterator[tuple[Any, Callable[[bool], Awaitable[None]]]]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(alchemy_url())
    with engine.connect() as connection:

        async def end(commit: bool) -> None:
            connection.commit() if commit else connection.rollback()

        yield connection, end
    engine.dispose()


@asynccontextmanager
async def alchemy_session() -> AsyncIterator[tuple[Any, Callable[[bool], Awaitable[None]]]]:
    import sqlalchemy
    import sqlalchemy.orm

    engine = sqlalchemy.create_engine(alchemy_url())
    with sqlalchemy.orm.Session(engine) as session:

        async def end(commit: bool) -> None:
            session.commit() if commit else session.rollback()

        yield session, end
    engine.dispose()


@asynccontextmanager
async def django_connection() -> AsyncIterator[tuple[Any, Callable[[bool], Awaitable[None]]]]:
    from django.db.backends.postgresql.base import DatabaseWrapper

    settings = {
        "NAME": "postgres",
        "USER": "postgres",
        "HOST": str(server().folder),
        "PASSWORD": "",
        "PORT": "",
        "OPTIONS": {},
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": False,
        "TIME_ZONE": None,
        "ATOMIC_REQUESTS": False,
    }
    import django.conf

    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_TZ=True)
    import os

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    connection = DatabaseWrapper(settings, alias="default")
    connection.set_autocommit(False)

    async def end(commit: bool) -> None:
        connection.commit() if commit else connection.rollback()

    try:
        yield connection, end
    finally:
        connection.close()


CALLERS = {
    "psycopg": psycopg_sync,
    "psycopg async": psycopg_async,
    "sqlalchemy connection": alchemy_connection,
    "sqlalchemy session": alchemy_session,
    "django": django_connection,
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
async def test_a_job_is_seen_if_and_only_if_the_caller_commits(store, caller, commit):
    async with CALLERS[caller]() as (within, end):
        await store.insert([NewJob("a", "line", "work")], within=within)
        before = (await store.get(["a"]), await claimed(store))

        await end(commit)

        assert before == ([], [])
        assert await claimed(store) == (["a"] if commit else [])


async def test_what_commits_late_is_found_however_many_claims_passed(store):
    async with CALLERS["psycopg"]() as (within, end):
        await store.insert([NewJob("late", "line", "work", group="tenant")], within=within)
        for number in range(30):
            await store.insert([NewJob(f"early {number}", "line", "work", group=f"group {number % 3}")])
            assert await claimed(store) == [f"early {number}"]

        await end(True)

        assert await claimed(store) == ["late"]


async def test_an_open_transaction_blocks_neither_claims_nor_other_adders_of_its_group(store):
    async with CALLERS["psycopg"]() as (within, end):
        await store.insert([NewJob("a", "line", "work", group="tenant")], within=within)

        await asyncio.wait_for(store.insert([NewJob("b", "line", "work", group="tenant")]), 5)
        started = await claimed(store)
        await end(True)

        assert (started, await claimed(store)) == (["b"], ["a"])


async def test_a_full_group_leaves_the_callers_transaction_usable_and_adds_nothing(store):
    async with CALLERS["psycopg"]() as (within, end):
        jobs = [NewJob(f"{number}", "line", "work", group="tenant", group_max_size=2) for number in range(3)]
        with pytest.raises(GroupFull):
            await store.insert(jobs, within=within)
        await store.insert(jobs[:1], within=within)

        await end(True)

        assert await claimed(store) == ["0"]


async def test_two_transactions_fill_a_group_to_its_size_and_no_further(store):
    async with CALLERS["psycopg async"]() as (one, end_one), CALLERS["psycopg async"]() as (two, end_two):
        await store.insert([NewJob("a", "line", "work", group="tenant", group_max_size=1)], within=one)
        second = asyncio.ensure_future(
            store.insert([NewJob("b", "line", "work", group="tenant", group_max_size=1)], within=two)
        )
        await asyncio.sleep(0.2)
        waited = not second.done()
        await end_one(True)

        with pytest.raises(GroupFull):
            await second
        await end_two(False)
        assert waited


async def test_the_same_id_in_two_transactions_is_one_job(store):
    async with CALLERS["psycopg async"]() as (one, end_one), CALLERS["psycopg async"]() as (two, end_two):
        await store.insert([NewJob("a", "line", "work")], within=one)
        second = asyncio.ensure_future(store.insert([NewJob("a", "line", "work")], within=two))
        await asyncio.sleep(0.2)
        await end_one(True)

        (inserted,) = await second
        await end_two(True)

        assert (inserted.existed, await claimed(store)) == (True, ["a"])


async def test_something_that_is_no_connection_is_refused(store):
    with pytest.raises(ConfigError, match="within"):
        await store.insert([NewJob("a", "line", "work")], within="a string")


async def test_a_worker_hears_of_a_commit(store):
    queue = Queue("line", store=store)
    assert await queue.counts()
    listener = store.listen(["line"])
    await asyncio.sleep(2.5)
    listener.event.clear()
    async with CALLERS["psycopg"]() as (within, end):
        await store.insert([NewJob("a", "line", "work")], within=within)
        await asyncio.sleep(0.3)
        before = listener.event.is_set()

        await end(True)

        await asyncio.wait_for(listener.event.wait(), 5)
        assert not before
    listener.close()


@pytest.mark.parametrize("module", ["asyncpg.connection", "psycopg2.extensions", "pg8000.native"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["its own", "in another"])
async def test_a_connection_of_another_driver_is_refused_by_name(store, module, wrapped):
    theirs = type("Connection", (), {"__module__": module})()
    within = types.SimpleNamespace(driver_connection=theirs) if wrapped else theirs

    with pytest.raises(ConfigError, match=f"psycopg 3.*this one is {module.split('.')[0]}'s") as caught:
        await store.insert([NewJob("a", "line", "work")], within)

    assert caught.value.option == "within"
    assert await store.get(["a"]) == []
