"""A job that the store itself fails is in the answer of the step that failed it, once: nobody else could log it."""

from __future__ import annotations

import pytest

from paceline.job import JobState, Move
from paceline.limits import Rate
from paceline.stores.interface import Failed, Outcome, Target

from .builders import MINUTE, SECOND, add, claim, declare, finish, read, start

LEASE = 10 * SECOND
CRASHED = "crashed: it took down its worker 3 times (the worker that ran it died: its lease ended)"
NEVER_FITS = "NeverFits: the job costs 3, but limit 'api' never allows more than 2"


async def crash(store, clock, times: int) -> None:
    for _ in range(times):
        await start(store, lease=LEASE)
        clock.advance(LEASE)


def failed(id: str, error: str, **changes) -> Failed:
    about = {"queue": "line", "task": "work", "group": None, "attempts_made": 0} | changes
    return Failed(id=id, error=error, **about)


@pytest.mark.parametrize("keep", [None, 0])
async def test_a_claim_names_the_jobs_that_can_never_fit(store, keep):
    await declare(store, "api", Rate(5, per="1m"), tasks=["send"])
    await add(store, "big", "too", task="send", cost=3, group="acme", keep=keep)
    await add(store, "small")
    await declare(store, "api", Rate(2, per="1m"), tasks=["send"])

    first, second = await claim(store, 5), await claim(store, 5)

    about = {"task": "send", "group": "acme"}
    assert first.failed == [failed("big", NEVER_FITS, **about), failed("too", NEVER_FITS, **about)]
    assert second.failed == []
    assert [job.id for job in first.jobs + second.jobs] == ["small"]


async def test_an_attempt_that_was_used_before_is_counted(store, clock):
    await declare(store, "api", Rate(5, per="1m"))
    await add(store, "big", cost=3, attempts=4)
    (run,) = await start(store)
    await finish(store, run, Outcome.RETRY)
    await declare(store, "api", Rate(2, per="1m"))
    clock.advance(MINUTE)

    assert (await claim(store)).failed == [failed("big", NEVER_FITS, attempts_made=1)]


@pytest.mark.parametrize("keep", [None, 0])
async def test_a_claim_names_the_job_that_took_down_its_third_worker(store, clock, keep):
    await add(store, "bad", keep=keep, group="acme")
    await crash(store, clock, 3)
    await add(store, "good")

    first, second = await claim(store, 5), await claim(store, 5)

    assert first.failed == [failed("bad", CRASHED, group="acme")]
    assert second.failed == []
    assert [job.id for job in first.jobs] == ["good"]


async def test_earlier_crashes_and_cancelled_jobs_are_no_failures(store, clock):
    await add(store, "bad")
    await crash(store, clock, 2)
    (run,) = await start(store, lease=LEASE)
    await store.move([run.id], Move.CANCEL)
    clock.advance(LEASE)

    assert (await claim(store)).failed == []
    assert (await read(store, "bad")).state is JobState.CANCELLED


async def test_whoever_takes_a_permit_learns_it_when_that_takes_back_a_dead_lease(store, clock):
    await declare(store, "api", Rate(9, per="1m"), tasks=["other"])
    await add(store, "bad")
    await crash(store, clock, 3)

    grants = [await store.acquire([Target("api")], f"permit-{number}", MINUTE) for number in range(2)]

    assert [grant.granted for grant in grants] == [True, True]
    assert [grant.failed for grant in grants] == [[failed("bad", CRASHED)], []]
