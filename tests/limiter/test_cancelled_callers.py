"""Callers that are cancelled, or get no answer, while the store grants them a slot: it is given back."""

from __future__ import annotations

import asyncio
import random

import pytest

from paceline import App, Concurrency, Queue, StoreUnavailable, Worker, open_store
from paceline.stores.interface import Store


async def used(app: App, name: str = "db") -> int:
    return (await app.limit_state(name)).used


async def comes_back(app: App, name: str = "db") -> None:
    """Within seconds nothing is taken; a lease would take thirty."""
    async with asyncio.timeout(5):
        while await used(app, name):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def lose_answers(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> asyncio.Event:
    """A step is done, but its first answer never arrives."""
    done = asyncio.Event()
    step = getattr(store, name)

    async def silent(*args, **kwargs):
        answer = await step(*args, **kwargs)
        if not done.is_set():
            done.set()
            await asyncio.sleep(60)
        return answer

    monkeypatch.setattr(store, name, silent)
    return done


async def acquires(limiter, **options):
    async with limiter.acquire(**options):
        await asyncio.sleep(60)


@pytest.mark.parametrize("how", ["acquire", "try_acquire", "record_job_start"])
async def test_a_slot_that_was_granted_to_a_cancelled_caller_comes_back(real_store, monkeypatch, how):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(3))
    await used(app)
    done = lose_answers(real_store, monkeypatch, "acquire")
    caller = asyncio.create_task(acquires(limiter) if how == "acquire" else getattr(limiter, how)())
    await done.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    await comes_back(app)


@pytest.mark.parametrize("how", ["acquire", "try_acquire", "record_job_start"])
async def test_a_slot_whose_grant_got_lost_with_the_connection_comes_back(real_store, monkeypatch, how):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(3))
    await used(app)
    acquire = real_store.acquire

    async def breaks(*args, **kwargs):
        await acquire(*args, **kwargs)
        raise StoreUnavailable("the connection broke")

    monkeypatch.setattr(real_store, "acquire", breaks)
    with pytest.raises(StoreUnavailable):
        await (acquires(limiter, timeout=0) if how == "acquire" else getattr(limiter, how)())

    await comes_back(app)


async def test_a_caller_that_is_cancelled_while_it_gives_its_slot_back_has_given_it_back(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(3))
    permit = await limiter.try_acquire()
    assert permit is not None
    give_back = real_store.give_back
    asked = asyncio.Event()

    async def slow(permits):
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(60)
        await give_back(permits)

    monkeypatch.setattr(real_store, "give_back", slow)
    leaving = asyncio.create_task(permit.release())
    await asked.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

    await comes_back(app)


async def test_many_callers_that_go_away_leave_nothing_behind(real_store):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(3))
    await used(app)
    chance = random.Random()

    async def visits():
        async with limiter.acquire():
            await asyncio.sleep(0)

    for _ in range(100):
        caller = asyncio.create_task(visits())
        await asyncio.sleep(chance.random() * 0.004)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)

    await comes_back(app)


async def test_a_worker_that_is_cancelled_while_it_tells_its_limiter_of_a_start_frees_the_slot(real_store, monkeypatch):
    monkeypatch.setattr("paceline.lifecycle.pace.LAST_WORDS", 0.05)
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(3))
    await used(app)
    elsewhere = open_store("memory://")
    job = await Queue("line", store=elsewhere).add("work")
    done = lose_answers(real_store, monkeypatch, "acquire")

    async def handler(job):
        await asyncio.sleep(60)

    running = asyncio.create_task(Worker("line", handler, store=elsewhere, limiter=limiter).run())
    await done.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (await job.refresh()).state == "waiting"
    await comes_back(app)
