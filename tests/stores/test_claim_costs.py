"""Step 2, claim: jobs that take more than one of a limit, and the room that is kept for big ones."""

from __future__ import annotations

import pytest

from paceline.errors import NeverFits
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Delay, EvenlySpaced, Rate
from paceline.stores.interface import Override, Target

from .builders import (
    MINUTE,
    SECOND,
    a_job,
    add,
    add_many,
    claim,
    claimed,
    declare,
    hold,
    opens_exactly_at,
    read,
    start,
    state_of,
    usage,
)

# what a job takes


async def test_a_cost_counts_for_a_rate(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await add(store, "a", "b", "c", cost=4)

    assert claimed(await claim(store, 3)) == ["a", "b"]
    assert (await usage(store, "tokens")).used == 8
    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_a_cost_counts_for_every_rate_that_the_job_meets(store):
    await declare(store, "tokens", Rate(10, per="1m"))
    await declare(store, "tenant", Rate(20, per="1m"), by="group")
    await add(store, "a", cost=4, group="acme")

    await start(store)

    assert ((await usage(store, "tokens")).used, (await usage(store, "tenant", "acme")).used) == (4, 4)


async def test_a_cost_by_limit_counts_there_and_as_one_elsewhere(store):
    await declare(store, "tokens", Rate(10, per="1m"))
    await declare(store, "calls", Rate(10, per="1m"))
    await add(store, "a", cost={"tokens": 7, "no such limit": 99})

    await start(store)

    assert ((await usage(store, "tokens")).used, (await usage(store, "calls")).used) == (7, 1)


async def test_costs_of_one_instant_add_up(store, clock):
    await declare(store, "tokens", Rate(6, per="1m"))
    first = clock.now()
    await store.insert([a_job("a", cost=1), a_job("b", cost=2), a_job("c", cost=3), a_job("d", cost=1)])
    await start(store, 2)
    clock.advance("10s")
    await start(store)

    assert (await usage(store, "tokens")).used == 6
    await opens_exactly_at(store, clock, first + MINUTE)


async def test_the_summed_cost_of_no_window_is_above_the_maximum(store, clock):
    await declare(store, "tokens", Rate(10, per="1s"))
    costs = [1, 3, 7, 2, 5, 10, 4] * 8
    await store.insert([a_job(cost=cost) for cost in costs])

    starts = []
    while len(starts) < len(costs):
        answer = await claim(store, 5)
        starts += [(job.started_at, job.cost) for job in answer.jobs]
        clock.to(clock.now() if answer.jobs else max(answer.ask_again_at, clock.now() + 1))

    sums = [sum(cost for at, cost in starts if end - SECOND < at <= end) for end, _ in starts]
    assert [cost for _, cost in starts] == costs
    assert max(sums) == 10


async def test_a_concurrency_counts_a_job_as_one(store):
    await declare(store, "all", Concurrency(2))
    await add(store, "a", "b", "c", cost=5)

    assert claimed(await claim(store, 3)) == ["a", "b"]


async def test_a_delay_counts_a_job_as_one(store, clock):
    await declare(store, "all", Delay("50ms"))
    await add(store, "a", "b", cost=5)
    await start(store)

    await opens_exactly_at(store, clock, clock.now() + 50_000)


async def test_even_spacing_follows_a_job_with_one_interval_for_each_unit_of_its_cost(store, clock):
    await declare(store, "all", EvenlySpaced(10, per="1s"))
    first = clock.now()
    await store.insert([a_job("a", cost=3), a_job("b"), a_job("c", cost=3)])
    await start(store)

    await opens_exactly_at(store, clock, first + 300_000)
    await opens_exactly_at(store, clock, first + 400_000)


# costs that can never fit


async def test_a_cost_above_the_maximum_is_refused_at_once(store):
    await declare(store, "tokens", Rate(10, per="1m"))

    with pytest.raises(NeverFits) as refused:
        await add(store, "a", cost=11)

    assert (refused.value.limit, refused.value.cost, refused.value.allowed) == ("tokens", 11, 10)
    assert await store.get(["a"]) == []


async def test_a_cost_of_exactly_the_maximum_fits(store):
    await declare(store, "tokens", Rate(10, per="1m"))

    await add(store, "a", cost=10)

    assert claimed(await claim(store)) == ["a"]


async def test_the_smallest_rate_of_a_limit_decides_what_fits(store):
    await declare(store, "tokens", Rate(100, per="1h") & Concurrency(2) & Rate(5, per="1s"))

    with pytest.raises(NeverFits) as refused:
        await add(store, "a", cost=6)

    assert refused.value.allowed == 5


async def test_a_cost_by_limit_is_checked_where_it_counts(store):
    await declare(store, "tokens", Rate(10, per="1m"))
    await declare(store, "calls", Rate(2, per="1m"))
    await add(store, "a", cost={"tokens": 10})

    with pytest.raises(NeverFits) as refused:
        await add(store, "b", cost={"calls": 3})

    assert (refused.value.limit, refused.value.cost) == ("calls", 3)


async def test_a_limit_that_the_job_does_not_meet_refuses_no_cost(store):
    await declare(store, "mail", Rate(1, per="1m"), tasks=["send"])
    await declare(store, "tenant", Rate(1, per="1m"), by="group")

    await add(store, "a", cost=50)

    assert claimed(await claim(store)) == ["a"]


async def test_the_numbers_of_its_own_group_decide_what_fits(store):
    await declare(store, "tenant", Rate(1, per="1m"), by="group", overrides={"big": Rate(9, per="1m")})

    await add(store, "a", cost=9, group="big")

    with pytest.raises(NeverFits):
        await add(store, "b", cost=2, group="small")


async def test_the_operators_numbers_decide_what_fits(store):
    await declare(store, "tokens", Rate(10, per="1m"))
    await store.override(Override(limit="tokens", kind=Rate(5, per="1m")), None)

    with pytest.raises(NeverFits) as refused:
        await add(store, "a", cost=6)

    assert refused.value.allowed == 5


async def test_a_job_that_no_longer_fits_fails_at_the_claim_and_hides_nobody(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await add(store, "big", cost=8)
    await add(store, "small", cost=5)
    await declare(store, "tokens", Rate(5, per="1m"))

    assert claimed(await claim(store)) == ["small"]
    big = await read(store, "big")
    assert (big.state, big.finished_at, big.attempts_made) == (JobState.FAILED, clock.now(), 0)
    assert big.error.startswith("NeverFits")
    assert (await usage(store, "tokens")).used == 5


async def test_a_job_that_no_longer_fits_leaves_room_in_its_group(store):
    await declare(store, "tokens", Rate(10, per="1m"), tasks=["big"])
    await add(store, "big", cost=8, task="big", group="acme", group_max_size=1)
    await declare(store, "tokens", Rate(5, per="1m"), tasks=["big"])
    await claim(store)

    await add(store, "next", group="acme", group_max_size=1)

    assert claimed(await claim(store)) == ["next"]


async def test_a_job_that_no_longer_fits_is_not_kept_when_nothing_is_to_be_kept(store):
    await declare(store, "tokens", Rate(10, per="1m"))
    await add(store, "big", cost=8, keep=0)
    await declare(store, "tokens", Rate(5, per="1m"))

    await claim(store)

    assert await store.get(["big"]) == []
    assert (await store.counts("line"))["failed"] == 0


# big jobs


async def a_big_job_that_lacks_room(store, clock, **changes) -> int:
    """Of 3 a minute 2 are taken, at now − 20 s and now − 10 s; "big" needs all 3. Returns when it fits."""
    await add_many(store, 2)
    await start(store)
    clock.advance("10s")
    await start(store)
    clock.advance("10s")
    await add(store, "big", cost=3, **changes)
    assert claimed(await claim(store, 5)) == []
    return clock.now() + 50 * SECOND


async def test_a_big_job_keeps_the_room_free_until_it_started(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    fits_at = await a_big_job_that_lacks_room(store, clock, group="big")
    await add_many(store, 5, group="small")

    job = await opens_exactly_at(store, clock, fits_at)

    assert job.id == "big"


async def test_a_small_job_does_not_overtake_a_big_one_of_its_own_lane(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    fits_at = await a_big_job_that_lacks_room(store, clock)
    await add(store, "small")

    assert (await opens_exactly_at(store, clock, fits_at)).id == "big"
    assert (await opens_exactly_at(store, clock, fits_at + MINUTE)).id == "small"


async def test_the_store_says_for_whom_room_is_kept(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    fits_at = await a_big_job_that_lacks_room(store, clock)

    before = (await usage(store, "tokens")).reserved_by
    clock.to(fits_at)
    await start(store)

    assert (before, (await usage(store, "tokens")).reserved_by) == ("big", None)


async def test_kept_room_stops_nobody_who_does_not_meet_the_limit(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"), tasks=["work"])
    await a_big_job_that_lacks_room(store, clock)

    await add(store, "other", task="other")

    assert claimed(await claim(store)) == ["other"]


async def test_kept_room_is_kept_from_other_queues_too(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await a_big_job_that_lacks_room(store, clock)

    await add(store, "small", queue="two")

    assert claimed(await claim(store, queues=["two"])) == []


async def test_kept_room_is_kept_from_permits_too(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    fits_at = await a_big_job_that_lacks_room(store, clock)

    grant = await store.acquire([Target("tokens")], "permit", MINUTE)

    assert (grant.granted, grant.until) == (False, fits_at)


async def test_a_big_job_that_another_limit_refuses_keeps_no_room(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await declare(store, "gate", Concurrency(1), tasks=["big"])
    await add(store, "running", task="big", cost=2)
    await start(store)
    await add(store, "big", task="big", cost=3)
    await claim(store)

    await add(store, "small")

    assert claimed(await claim(store)) == ["small"]


async def test_a_big_job_that_its_group_refuses_keeps_no_room(store):
    await declare(store, "tokens", Rate(3, per="1m"))
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "running", group="acme")
    await start(store)
    await add(store, "big", cost=3, group="acme")
    await claim(store)

    await add(store, "small", group="modest")

    assert claimed(await claim(store)) == ["small"]


async def test_a_big_job_that_comes_to_be_refused_otherwise_gives_its_room_up(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await declare(store, "gate", Rate(100, per="1m"), tasks=["big"])
    await a_big_job_that_lacks_room(store, clock, task="big", group="big")
    await add(store, "small")
    assert claimed(await claim(store)) == []

    await hold(store, "gate", for_="1h")

    assert claimed(await claim(store)) == ["small"]


async def test_a_better_job_starts_before_the_big_one_that_blocks_its_lane(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"), by="group")
    await add(store, "first", "big", group="acme", cost=3)
    await start(store)
    clock.advance("1m")
    await add(store, "small", group="acme", priority=-1)
    await start(store)
    assert claimed(await claim(store)) == []

    await add(store, "better", group="acme", priority=-1)

    assert claimed(await claim(store)) == ["better"]


@pytest.mark.parametrize("how", ["cancel", "remove", "pause the task", "drain"])
async def test_kept_room_is_free_again_when_the_big_job_is_out_of_the_way(store, clock, how):
    await declare(store, "tokens", Rate(3, per="1m"))
    await a_big_job_that_lacks_room(store, clock, task="big", group="big")
    if how == "pause the task":
        await store.pause("line", "big", None, True)
    elif how == "drain":
        await store.drain("line")
    else:
        await store.move(["big"], Move(how))

    await add(store, "small", group="small")

    assert claimed(await claim(store)) == ["small"]


async def test_kept_room_is_free_again_after_one_window_when_nobody_serves_the_big_job(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await a_big_job_that_lacks_room(store, clock)
    reserved_at = clock.now()
    await add(store, "small", queue="two")

    clock.to(reserved_at + MINUTE - 1)
    before = claimed(await claim(store, queues=["two"]))
    clock.to(reserved_at + MINUTE)

    assert (before, claimed(await claim(store, queues=["two"]))) == ([], ["small"])


async def test_kept_room_is_free_again_after_one_window_even_if_others_were_forced_in(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await a_big_job_that_lacks_room(store, clock)
    reserved_at = clock.now()
    await add(store, "small", queue="two")
    clock.to(reserved_at + 50 * SECOND)
    await store.acquire([Target("tokens")], "forced", MINUTE, force=True)
    assert claimed(await claim(store, queues=["two"])) == []

    clock.to(reserved_at + MINUTE)

    assert claimed(await claim(store, queues=["two"])) == ["small"]


async def test_a_stream_of_small_jobs_does_not_starve_a_big_one(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    fits_at = await a_big_job_that_lacks_room(store, clock, group="big")

    while clock.now() < fits_at:
        await add_many(store, 3, group="small")
        await claim(store, 3)
        clock.advance("1s")
    await claim(store)

    assert (await read(store, "big")).started_at == fits_at


async def test_room_kept_in_one_group_stops_its_other_tasks_but_no_other_group(store, clock):
    await declare(store, "tenant", Rate(3, per="1m"), by="group")
    await declare(store, "other", Concurrency(9), tasks=["other"])
    await add(store, "first", group="acme")
    await start(store)
    clock.advance("10s")
    await add(store, "big", cost=3, group="acme")
    assert claimed(await claim(store)) == []
    await add(store, "same group", task="other", group="acme")
    await add(store, "other group", task="other", group="modest")

    assert claimed(await claim(store, 5)) == ["other group"]
    assert (await opens_exactly_at(store, clock, clock.now() + 50 * SECOND)).id == "big"


async def test_room_kept_in_one_group_is_free_for_its_other_tasks_when_the_big_job_is_cancelled(store, clock):
    await declare(store, "tenant", Rate(3, per="1m"), by="group")
    await declare(store, "other", Concurrency(9), tasks=["other"])
    await add(store, "first", group="acme")
    await start(store)
    await add(store, "big", cost=3, group="acme")
    await add(store, "small", task="other", group="acme")
    assert claimed(await claim(store, 5)) == []

    await store.move(["big"], Move.CANCEL)

    assert await state_of(store, "big") == JobState.CANCELLED
    assert claimed(await claim(store, 5)) == ["small"]
