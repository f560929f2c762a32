"""Waiting for the end of a job: told when it ends, and never left alone."""

from __future__ import annotations

import asyncio

import pytest

from paceline.errors import JobNotFound, PacelineError
from paceline.job import JobState, Move
from paceline.limits import Rate
from paceline.stores.interface import Outcome

from .builders import HOUR, MINUTE, a_job_in, add, claim, declare, finish, soon, start


async def waiter_for(store, clock, timeout: int = HOUR) -> asyncio.Task:
    """Somebody who waits for job "a"."""
    task = asyncio.create_task(store.finished("a", timeout))
    await soon(clock.until_somebody_sleeps())
    return task


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
@pytest.mark.parametrize("timeout", [None, MINUTE])
async def test_a_job_that_has_ended_is_given_at_once(store, state, timeout):
    record = await a_job_in(store, state)

    assert await soon(store.finished("a", timeout)) == record


async def test_nobody_waits_for_a_job_that_does_not_exist(store):
    with pytest.raises(JobNotFound):
        await soon(store.finished("nobody", None))


@pytest.mark.parametrize("keep", [0, None])
async def test_whoever_waits_gets_the_job_when_it_ends(store, clock, keep):
    job = await a_job_in(store, JobState.ACTIVE, keep=keep)
    waiter = await waiter_for(store, clock)

    await finish(store, job, result=b"42")

    record = await soon(waiter)
    assert (record.state, record.result, record.finished_at) == (JobState.COMPLETED, b"42", clock.now())


async def test_waiting_without_a_timeout_ends_with_the_job(store):
    job = await a_job_in(store, JobState.ACTIVE)
    waiter = asyncio.create_task(store.finished("a", None))
    await asyncio.sleep(0)

    await finish(store, job, Outcome.FAILED, error="broken")

    assert (await soon(waiter)).error == "broken"


async def test_all_who_wait_are_told(store, clock):
    job = await a_job_in(store, JobState.ACTIVE)
    waiters = [await waiter_for(store, clock) for _ in range(3)]

    await finish(store, job)

    assert {(await soon(waiter)).state for waiter in waiters} == {JobState.COMPLETED}


async def test_whoever_waits_gets_a_job_that_is_cancelled(store, clock):
    await add(store, "a")
    waiter = await waiter_for(store, clock)

    await store.move(["a"], Move.CANCEL)

    assert (await soon(waiter)).state is JobState.CANCELLED


async def test_whoever_waits_is_not_told_of_a_retry(store, clock):
    job = await a_job_in(store, JobState.ACTIVE, attempts=2)
    waiter = await waiter_for(store, clock)

    await finish(store, job, Outcome.RETRY)
    (job,) = await start(store)
    await finish(store, job)

    assert (await soon(waiter)).attempts_made == 2


async def test_whoever_waits_is_told_of_the_third_crash(store, clock):
    await add(store, "a")
    waiter = await waiter_for(store, clock)

    for _ in range(4):
        await claim(store, lease="1m")
        clock.advance("1m")

    assert (await soon(waiter)).crashes == 3


async def test_whoever_waits_is_told_when_the_job_no_longer_fits(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await add(store, "a", cost=8)
    waiter = await waiter_for(store, clock)
    await declare(store, "tokens", Rate(5, per="1m"))

    await claim(store)

    assert (await soon(waiter)).state is JobState.FAILED


@pytest.mark.parametrize("how", ["remove", "drain", "obliterate"])
async def test_whoever_waits_is_told_when_the_job_is_removed(store, clock, how):
    await add(store, "a")
    waiter = await waiter_for(store, clock)

    if how == "remove":
        await store.move(["a"], Move.REMOVE)
    elif how == "drain":
        await store.drain("line")
    else:
        await store.obliterate("line", False)

    with pytest.raises(JobNotFound):
        await soon(waiter)


async def test_waiting_ends_exactly_when_the_time_is_over(store, clock):
    await add(store, "a")
    waiter = await waiter_for(store, clock, MINUTE)

    clock.to(clock.now() + MINUTE - 1)
    for _ in range(10):
        await asyncio.sleep(0)
    before = waiter.done()
    clock.to(clock.now() + 1)

    assert (before, await soon(waiter)) == (False, None)


async def test_waiting_ends_with_an_error_when_the_store_is_closed(store, clock):
    await add(store, "a")
    waiter = await waiter_for(store, clock)

    await store.close()

    with pytest.raises(PacelineError):
        await soon(waiter)
