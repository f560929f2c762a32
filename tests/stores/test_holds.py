"""Holds: nobody starts under a limit before an instant, because a service or an operator said so."""

from __future__ import annotations

from contextlib import suppress

import pytest

from paceline.errors import ConfigError
from paceline.job import JobState
from paceline.limits import Concurrency, Limit, Rate, Unlimited
from paceline.stores.interface import Hold, Outcome, Override, Target

from .builders import (
    HOUR,
    MINUTE,
    SECOND,
    a_job_in,
    add,
    add_many,
    claim,
    claimed,
    declare,
    ending,
    finish,
    groups_of,
    hold,
    opens_exactly_at,
    start,
    start_all,
    state_of,
    usage,
)

ROOMY = Rate(100, per="1s")

# holding


@pytest.mark.parametrize("how", ["for", "until"])
async def test_a_held_limit_starts_nobody_before_its_time(store, clock, how):
    await declare(store, "mail", ROOMY)
    await add(store, "a")

    await hold(store, "mail", **({"for_": "30s"} if how == "for" else {"until": clock.now() + 30 * SECOND}))

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


@pytest.mark.parametrize("kind", [Unlimited(), Concurrency(5), ROOMY], ids=repr)
async def test_every_kind_can_be_held(store, clock, kind):
    await declare(store, "mail", kind)
    await add(store, "a")

    await hold(store, "mail", for_="30s")

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_hold_is_not_wiped_by_room_in_the_window(store, clock):
    await declare(store, "mail", ROOMY)
    await add_many(store, 5)
    await hold(store, "mail", for_="30s")
    until = clock.now() + 30 * SECOND

    for _ in range(29):
        assert claimed(await claim(store, 5)) == []
        clock.advance("1s")

    assert (await usage(store, "mail")).hold_until == until


async def test_a_shorter_hold_does_not_shorten_a_longer_one(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    await hold(store, "mail", for_="1m")

    await hold(store, "mail", for_="10s")
    await hold(store, "mail", until=clock.now() - HOUR)

    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_a_longer_hold_lengthens_a_shorter_one(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    await hold(store, "mail", for_="10s")

    await hold(store, "mail", for_="1m")

    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_a_hold_and_a_full_window_open_at_the_later_of_the_two(store, clock):
    await declare(store, "mail", Rate(1, per="1m"))
    await add(store, "a", "b")
    await start(store)

    await hold(store, "mail", for_="10s")

    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_a_hold_is_seen_by_all_workers_queues_and_handles(store, handle):
    await declare(store, "mail", ROOMY, tasks=["work"])
    await add(store, "a", queue="one")
    await add(store, "b", queue="two")

    async with handle() as other:
        await hold(other, "mail", for_="30s")

    assert claimed(await claim(store, worker="one", queues=["one"])) == []
    assert claimed(await claim(store, worker="two", queues=["two"])) == []


async def test_a_hold_stops_nobody_who_does_not_meet_the_limit(store):
    await declare(store, "mail", ROOMY, tasks=["mail"])
    await add_many(store, 100, task="mail")
    await add(store, "other")

    await hold(store, "mail", for_="30s")

    assert claimed(await claim(store, 5)) == ["other"]


async def test_what_runs_goes_on_under_a_hold(store):
    await declare(store, "mail", ROOMY)
    job = await a_job_in(store, JobState.ACTIVE)

    await hold(store, "mail", for_="30s")

    await finish(store, job)
    assert await state_of(store, "a") == JobState.COMPLETED


async def test_a_hold_stops_permits(store, clock):
    await declare(store, "mail", ROOMY)

    await hold(store, "mail", for_="30s")

    grant = await store.acquire([Target("mail")], "permit", MINUTE)
    assert (grant.granted, grant.until) == (False, clock.now() + 30 * SECOND)


async def test_the_store_says_why_a_limit_is_held(store, clock):
    await declare(store, "mail", ROOMY)

    await hold(store, "mail", for_="30s", reason="429 from the provider")

    state = await usage(store, "mail")
    assert (state.hold_until, state.hold_reason) == (clock.now() + 30 * SECOND, "429 from the provider")
    assert state.opens_at == clock.now() + 30 * SECOND


async def test_other_numbers_do_not_end_a_hold(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    await hold(store, "mail", for_="30s")

    await declare(store, "mail", Unlimited())
    await store.override(Override(limit="mail", kind=Concurrency(9)), None)
    await store.lift("mail", None)

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


# groups


async def test_one_group_may_be_held(store, clock):
    await declare(store, "tenant", ROOMY, by="group")
    for group in ("a", "b"):
        await add_many(store, 2, group=group)

    await hold(store, "tenant", group="a", for_="30s")

    assert groups_of(await start_all(store)) == ["b", "b"]
    assert (await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)).group == "a"


async def test_a_group_that_never_had_a_job_may_be_held(store, clock):
    await declare(store, "tenant", ROOMY, by="group")

    await hold(store, "tenant", group="later", for_="30s")

    await add(store, "a", group="later")
    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_limit_of_groups_that_is_held_without_a_group_is_held_for_all(store, clock):
    await declare(store, "tenant", ROOMY, by="group")
    await add(store, "a", group="a")
    await add(store, "b", group="b")

    await hold(store, "tenant", for_="30s")

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_limit_of_groups_that_is_held_without_a_group_is_held_for_groups_to_come(store, clock):
    await declare(store, "tenant", ROOMY, by="group")

    await hold(store, "tenant", for_="30s")

    await add(store, "a", group="later")
    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_hold_of_all_groups_is_shown_without_a_group(store, clock):
    await declare(store, "tenant", ROOMY, by="group")

    await hold(store, "tenant", for_="30s", reason="429")

    state = await usage(store, "tenant")
    assert (state.hold_until, state.hold_reason) == (clock.now() + 30 * SECOND, "429")


# releasing


async def test_a_released_limit_starts_at_once(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    await hold(store, "mail", for_="30s")
    assert claimed(await claim(store)) == []

    await store.release("mail", None)

    assert claimed(await claim(store)) == ["a"]
    assert (await usage(store, "mail")).hold_until <= clock.now()


async def test_releasing_a_hold_forgets_no_starts(store, clock):
    await declare(store, "mail", Rate(1, per="1m"))
    await add(store, "a", "b")
    await start(store)
    await hold(store, "mail", for_="1h")

    await store.release("mail", None)

    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_one_group_may_be_released(store, clock):
    await declare(store, "tenant", ROOMY, by="group")
    for group in ("a", "b"):
        await add(store, group, group=group)
        await hold(store, "tenant", group=group, for_="30s")
    assert claimed(await claim(store, 5)) == []

    await store.release("tenant", "b")

    assert claimed(await claim(store, 5)) == ["b"]
    assert (await usage(store, "tenant", "a")).hold_until == clock.now() + 30 * SECOND


async def test_releasing_without_a_group_releases_all(store):
    await declare(store, "tenant", ROOMY, by="group")
    for group in ("a", "b"):
        await add(store, group, group=group)
        await hold(store, "tenant", group=group, for_="30s")
    assert claimed(await claim(store, 5)) == []

    await store.release("tenant", None)

    assert claimed(await claim(store, 5)) == ["a", "b"]


@pytest.mark.parametrize("how", ["release", "drop and declare"])
async def test_the_end_of_a_hold_without_a_group_holds_for_groups_to_come(store, how):
    await declare(store, "tenant", ROOMY, by="group")
    await hold(store, "tenant", for_="30s")
    if how == "release":
        await store.release("tenant", None)
    else:
        await store.drop_limit("tenant")
        await declare(store, "tenant", ROOMY, by="group")

    await add(store, "a", group="later")

    assert claimed(await claim(store)) == ["a"]


async def test_clearing_a_limit_ends_its_hold(store):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    await hold(store, "mail", for_="30s")

    await store.clear("mail", None)

    assert claimed(await claim(store)) == ["a"]


async def test_dropping_a_limit_ends_its_hold(store):
    await declare(store, "mail", ROOMY)
    await add(store, "a")
    await hold(store, "mail", for_="30s")

    await store.drop_limit("mail")

    assert claimed(await claim(store)) == ["a"]


# holds that come with the end of a run


async def test_a_refusal_from_outside_holds_the_limit_for_everybody(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a", "b")
    (job,) = await start(store)

    await finish(store, job, Outcome.RETURNED, holds=(Hold(limit="mail", for_=30 * SECOND),))

    assert (await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)).id == "a"


async def test_a_hold_that_is_sent_along_with_a_claim_holds_for_that_claim(store):
    await declare(store, "mail", ROOMY)
    await add(store, "a", "b")
    (job,) = await start(store)

    held = ending(job, Outcome.RETURNED, holds=(Hold(limit="mail", for_=30 * SECOND),))

    assert claimed(await claim(store, 5, finishes=[held])) == []


async def test_whoever_lost_the_lease_holds_nothing(store, clock):
    await declare(store, "mail", ROOMY)
    await add(store, "a", "b")
    (stale,) = await start(store, lease="30s")
    clock.advance("30s")
    await start(store)

    await store.finish([ending(stale, Outcome.RETURNED, holds=(Hold(limit="mail", for_=HOUR),))])

    assert claimed(await claim(store)) == ["b"]


async def test_ends_of_runs_with_an_unknown_limit_are_taken_as_a_whole_or_not_at_all(store):
    await add(store, "a", "b")
    first, second = await start(store, 2)
    unknown = ending(second, Outcome.RETURNED, holds=(Hold(limit="nobody", for_=SECOND),))

    with suppress(ConfigError):
        await store.finish([ending(first), unknown])

    states = [await state_of(store, "a"), await state_of(store, "b")]
    assert states in ([JobState.ACTIVE, JobState.ACTIVE], [JobState.COMPLETED, JobState.WAITING])


async def test_no_limit_is_held_when_one_is_unknown(store):
    await declare(store, "mail", ROOMY)
    await add(store, "a")

    with pytest.raises(ConfigError):
        await store.hold([Hold(limit="mail", for_=MINUTE), Hold(limit="nobody", for_=MINUTE)])

    assert claimed(await claim(store)) == ["a"]


async def test_a_hold_may_bring_the_limit_it_needs(store, clock):
    stand_in = Limit("task:line:mail", Unlimited(), queues=["line"], tasks=["mail"])
    await add(store, "a", task="mail")
    await add(store, "b", task="other")
    await add(store, "c", task="mail", queue="other")

    await hold(store, "task:line:mail", for_="30s", create=stand_in)

    assert await store.limits() == [stand_in]
    assert claimed(await claim(store, 5, queues=["line", "other"])) == ["b", "c"]
    assert (await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)).id == "a"


async def test_a_hold_that_brings_a_limit_leaves_a_declared_one_as_it_is(store, clock):
    await declare(store, "mail", Rate(1, per="1h"), tasks=["mail"])

    await hold(store, "mail", for_="30s", create=Limit("mail", Unlimited(), queues=["line"], tasks=["mail"]))

    assert await store.limits() == [Limit("mail", Rate(1, per="1h"), tasks=["mail"])]
    assert (await usage(store, "mail")).hold_until == clock.now() + 30 * SECOND
