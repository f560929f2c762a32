"""Refusals from outside that name no time: each one in a row holds the limit longer, a success starts over."""

from __future__ import annotations

import pytest

from paceline.limits import Backoff, Rate
from paceline.stores.interface import Hold, Outcome

from .builders import MINUTE, SECOND, add, complete, declare, finish, hold, start, usage

ROOMY = Rate(100, per="1s")


async def held_for(store, clock, limit: str = "mail", **changes) -> int:
    """Refuse once more, right after the hold before has passed; returns how long the new one is."""
    clock.to(max(clock.now(), (await usage(store, limit)).hold_until))
    await hold(store, limit, **changes)
    return (await usage(store, limit)).hold_until - clock.now()


async def test_each_refusal_in_a_row_holds_twice_as_long_up_to_ten_minutes(store, clock):
    await declare(store, "mail", ROOMY)

    holds = [await held_for(store, clock) for _ in range(12)]

    assert [each // SECOND for each in holds] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


async def test_the_jitter_that_is_passed_in_lengthens_the_hold(store, clock):
    await declare(store, "mail", ROOMY)

    holds = [await held_for(store, clock, jitter=jitter) for jitter in (0.5, 0.25, 0.0)]

    assert holds == [1_500_000, 2_500_000, 4_000_000]


async def test_a_limit_may_have_a_backoff_of_its_own(store, clock):
    await declare(store, "mail", ROOMY, backoff=Backoff("10s", 3, "1m"))

    holds = [await held_for(store, clock) for _ in range(4)]

    assert holds == [10 * SECOND, 30 * SECOND, MINUTE, MINUTE]


async def test_each_group_has_refusals_of_its_own(store, clock):
    await declare(store, "tenant", ROOMY, by="group")
    for _ in range(3):
        await hold(store, "tenant", group="a")

    await hold(store, "tenant", group="b")

    state = await usage(store, "tenant", "b")
    assert state.hold_until == clock.now() + SECOND


async def test_a_job_that_started_after_the_hold_and_went_well_resets_the_backoff(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    for _ in range(3):
        await held_for(store, clock)
    clock.advance("4s")

    await complete(store, await start(store))

    assert await held_for(store, clock) == SECOND


async def test_a_job_that_started_before_the_hold_does_not_reset_the_backoff(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    jobs = await start(store)
    clock.advance("1s")
    for _ in range(3):
        await held_for(store, clock)

    await complete(store, jobs)

    assert await held_for(store, clock) == 8 * SECOND


async def test_a_job_that_started_at_the_instant_of_the_hold_does_not_reset_the_backoff(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a", "b")
    jobs = await start(store, 2)
    await finish(store, jobs[0], Outcome.RETURNED, holds=(Hold(limit="mail"),))

    await finish(store, jobs[1])

    assert await held_for(store, clock) == 2 * SECOND


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.RETRY, Outcome.RETURNED, Outcome.CRASHED])
async def test_only_a_success_resets_the_backoff(store, clock, outcome):
    await declare(store, "mail", ROOMY)
    await add(store, "a", attempts=3)
    for _ in range(3):
        await held_for(store, clock)
    clock.advance("4s")

    await finish(store, (await start(store))[0], outcome)

    assert await held_for(store, clock) == 8 * SECOND


async def test_the_success_of_a_job_under_another_limit_does_not_reset_the_backoff(store, clock):
    await declare(store, "mail", ROOMY, tasks=["mail"])
    await add(store, "a", task="other")
    for _ in range(3):
        await held_for(store, clock)
    clock.advance("4s")

    await complete(store, await start(store))

    assert await held_for(store, clock) == 8 * SECOND


async def test_jobs_that_ran_together_are_refused_once(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a", "b", "c")
    jobs = await start(store, 3)
    clock.advance("1s")

    for job in jobs:
        await finish(store, job, Outcome.RETURNED, holds=(Hold(limit="mail"),))
        clock.advance("1ms")

    assert (await usage(store, "mail")).hold_until == clock.now() - 3_000 + SECOND
    assert await held_for(store, clock) == 2 * SECOND


async def test_jobs_that_started_at_the_instant_of_the_hold_are_refused_once(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a", "b", "c")

    for job in await start(store, 3):
        await finish(store, job, Outcome.RETURNED, holds=(Hold(limit="mail"),))

    assert (await usage(store, "mail")).hold_until == clock.now() + SECOND


async def test_a_job_that_started_after_the_hold_is_refused_anew(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")

    holds = []
    for _ in range(4):
        (job,) = await start(store)
        await finish(store, job, Outcome.RETURNED, holds=(Hold(limit="mail"),))
        holds.append((await usage(store, "mail")).hold_until - clock.now())
        clock.to((await usage(store, "mail")).hold_until)

    assert holds == [1 * SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]
