"""What people do to a whole queue: the same move for all, drain, clean, obliterate."""

from __future__ import annotations

import pytest

from paceline.errors import MoveNotAllowed
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Outcome

from .builders import (
    HOUR,
    MINUTE,
    a_job,
    a_job_in,
    add,
    add_many,
    claim,
    claimed,
    declare,
    ending,
    finish,
    hold,
    opens_exactly_at,
    read,
    start,
    state_of,
    usage,
)

WAITING, DELAYED, ACTIVE = JobState.WAITING, JobState.DELAYED, JobState.ACTIVE
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED
STATES = [COMPLETED, FAILED, CANCELLED, ACTIVE, WAITING, DELAYED]


async def one_in_each_state(store, queue: str = "line") -> dict[JobState, str]:
    """A queue with one job in each state that a job can be in."""
    for state in STATES:
        await a_job_in(store, state, f"{state} in {queue}", queue=queue)
    return {state: f"{state} in {queue}" for state in STATES}


async def left_in(store, ids: dict[JobState, str]) -> set[JobState]:
    """The states whose jobs are still there."""
    found = {job.id for job in await store.get(list(ids.values()))}
    return {state for state, id in ids.items() if id in found}


# the same move for all


async def test_all_failed_jobs_are_retried(store):
    for id in ("a", "b"):
        await a_job_in(store, FAILED, id)
    await a_job_in(store, COMPLETED, "c")

    assert await store.move_all("line", FAILED, Move.RETRY) == 2

    assert [job.state for job in await store.get(["a", "b", "c"])] == [WAITING, WAITING, COMPLETED]
    assert {(job.attempts_made, job.error) for job in await store.get(["a", "b"])} == {(0, None)}


async def test_all_completed_jobs_are_retried(store):
    await a_job_in(store, COMPLETED, "a")
    await a_job_in(store, FAILED, "b")

    assert await store.move_all("line", COMPLETED, Move.RETRY) == 1

    assert [job.state for job in await store.get(["a", "b"])] == [WAITING, FAILED]


async def test_all_delayed_jobs_are_promoted(store):
    await add(store, "a", "b", delay="1h")
    await add(store, "c")

    assert await store.move_all("line", DELAYED, Move.PROMOTE) == 2

    assert claimed(await claim(store, 5)) == ["a", "b", "c"]


async def test_a_delay_that_is_over_is_not_promoted(store, clock):
    await add(store, "a", delay="1s")
    await add(store, "b", delay="1h")
    clock.advance("1s")

    assert await store.move_all("line", DELAYED, Move.PROMOTE) == 1


async def test_all_running_jobs_are_asked_to_end(store):
    await add(store, "a", "b")
    await start(store, 2)

    assert await store.move_all("line", ACTIVE, Move.CANCEL) == 2

    assert {(job.state, job.cancel_asked) for job in await store.get(["a", "b"])} == {(ACTIVE, True)}


@pytest.mark.parametrize("move", Move)
async def test_a_move_of_all_touches_no_other_queue(store, move):
    before = await a_job_in(store, FAILED if move is Move.RETRY else DELAYED, "a", queue="other")

    assert await store.move_all("line", before.state, move) == 0

    assert await read(store, "a") == before


async def test_a_move_of_all_that_the_state_does_not_allow_is_refused(store):
    await a_job_in(store, ACTIVE)

    with pytest.raises(MoveNotAllowed) as refused:
        await store.move_all("line", ACTIVE, Move.REMOVE)

    assert (refused.value.state, refused.value.wanted) == (ACTIVE, Move.REMOVE)
    assert await state_of(store, "a") == ACTIVE


# drain


async def test_draining_removes_what_has_not_started(store):
    ids = await one_in_each_state(store)

    assert await store.drain("line") == 2

    assert await left_in(store, ids) == {ACTIVE, COMPLETED, FAILED, CANCELLED}


async def test_draining_touches_no_other_queue(store):
    ids = await one_in_each_state(store, "other")

    assert await store.drain("line") == 0

    assert await left_in(store, ids) == set(STATES)


async def test_a_drained_queue_goes_on(store):
    await add_many(store, 3, group="acme")
    await store.drain("line")

    await add(store, "a", group="acme")

    assert claimed(await claim(store, 5)) == ["a"]


async def test_a_running_job_of_a_drained_queue_goes_on(store):
    job = await a_job_in(store, ACTIVE)

    await store.drain("line")

    await finish(store, job)
    assert await state_of(store, "a") == COMPLETED


# clean


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELLED])
async def test_cleaning_removes_jobs_that_ended_longer_ago(store, clock, state):
    await a_job_in(store, state, "old")
    clock.advance("10s")
    await a_job_in(store, state, "new")

    assert await store.clean("line", state, 5_000_000) == 1

    assert [job.id for job in await store.get(["old", "new"])] == ["new"]


async def test_cleaning_keeps_a_job_that_ended_exactly_that_long_ago(store, clock):
    await a_job_in(store, COMPLETED)
    clock.advance("1m")
    exactly = await store.clean("line", COMPLETED, MINUTE)

    clock.advance("1us")

    assert (exactly, await store.clean("line", COMPLETED, MINUTE)) == (0, 1)


async def test_cleaning_counts_from_the_end_of_a_job(store, clock):
    job = await a_job_in(store, ACTIVE)
    clock.advance("1h")
    await finish(store, job)

    assert await store.clean("line", COMPLETED, MINUTE) == 0


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELLED, WAITING, DELAYED])
async def test_cleaning_removes_jobs_of_that_state_only(store, clock, state):
    ids = await one_in_each_state(store)
    clock.advance("10m")

    assert await store.clean("line", state, MINUTE) == 1

    assert await left_in(store, ids) == set(STATES) - {state}


async def test_cleaning_touches_no_other_queue(store, clock):
    await a_job_in(store, COMPLETED, queue="other")
    clock.advance("1h")

    assert await store.clean("line", COMPLETED, 0) == 0


async def test_a_job_that_was_delayed_waits_since_it_is_due(store, clock):
    await add(store, "a", delay="1h")
    clock.advance("1h")

    assert await store.clean("line", WAITING, MINUTE) == 0
    clock.to(clock.now() + MINUTE + 1)
    assert await store.clean("line", WAITING, MINUTE) == 1


async def test_a_job_that_came_back_waits_since_it_came_back(store, clock):
    job = await a_job_in(store, ACTIVE)
    clock.advance("1h")
    await finish(store, job, Outcome.RELEASED)

    assert await store.clean("line", WAITING, MINUTE) == 0
    clock.to(clock.now() + MINUTE + 1)
    assert await store.clean("line", WAITING, MINUTE) == 1


# obliterate


async def test_an_obliterated_queue_is_gone_with_all_its_jobs(store):
    for state in set(STATES) - {ACTIVE}:
        await a_job_in(store, state, state, queue=f"with {state}")
        assert await store.obliterate(f"with {state}", False) == 1

    assert await store.get(STATES) == []


async def test_a_queue_with_running_jobs_is_not_obliterated(store):
    ids = await one_in_each_state(store)

    with pytest.raises(MoveNotAllowed) as refused:
        await store.obliterate("line", False)

    assert refused.value.state == ACTIVE
    assert await left_in(store, ids) == set(STATES)


async def test_force_obliterates_running_jobs_too(store):
    ids = await one_in_each_state(store)

    assert await store.obliterate("line", True) == len(STATES)

    assert await left_in(store, ids) == set()
    assert set((await store.counts("line")).values()) == {0}


async def test_a_running_job_of_an_obliterated_queue_is_lost(store):
    job = await a_job_in(store, ACTIVE)

    await store.obliterate("line", True)

    assert await store.finish([ending(job)]) == ["a"]


@pytest.mark.parametrize("queue", ["line", "other"])
async def test_the_leases_of_an_obliterated_queue_end_without_a_trace(store, clock, queue):
    await add(store, "a")
    await start(store, lease="1m")
    await store.obliterate("line", True)

    clock.advance("1m")

    assert claimed(await claim(store, queues=[queue])) == []
    assert (await store.get(["a"]), set((await store.counts("line")).values())) == ([], {0})


async def test_the_leases_of_an_obliterated_queue_do_not_touch_a_new_job_of_the_same_id(store, clock):
    await add(store, "a")
    await start(store, lease="1m")
    await store.obliterate("line", True)
    await add(store, "a")
    (job,) = await start(store, lease="1h")

    clock.advance("1m")

    assert claimed(await claim(store)) == []
    assert await read(store, "a") == job


async def test_a_claim_asked_again_gives_nothing_of_an_obliterated_queue(store):
    await add(store, "a")
    await claim(store, claim_id="one")
    await store.obliterate("line", True)

    assert claimed(await claim(store, claim_id="one")) == []


async def test_an_obliterated_queue_gives_its_slots_back(store):
    await declare(store, "all", Concurrency(1))
    await a_job_in(store, ACTIVE)
    await add(store, "b", queue="other")

    await store.obliterate("line", True)

    assert claimed(await claim(store, queues=["other"])) == ["b"]


@pytest.mark.parametrize("group", [None, "acme"])
async def test_a_hold_outlives_the_obliteration_of_its_queue(store, clock, group):
    await declare(store, "tenant", Rate(9, per="1h"), by="group", queues=["line"])
    await store.usage("tenant", "acme")
    await hold(store, "tenant", for_="1m", group=group)

    await store.obliterate("line", True)
    await add(store, "a", group="acme")

    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_an_obliterated_queue_forgets_the_starts_of_its_own_limits(store):
    await declare(store, "it", Rate(1, per="1h"), queues=["line"])
    await declare(store, "tenant", Rate(1, per="1h"), queues=["line"], by="group")
    await add_many(store, 2, group="acme")
    await start(store)
    assert claimed(await claim(store)) == []

    await store.obliterate("line", True)

    await add(store, "new", group="acme")
    assert claimed(await claim(store)) == ["new"]


async def test_an_obliterated_queue_forgets_no_starts_of_shared_limits(store):
    await declare(store, "all", Rate(1, per="1h"))
    await declare(store, "two", Rate(5, per="1h"), queues=["line", "other"])
    await a_job_in(store, COMPLETED)

    await store.obliterate("line", True)

    assert ((await usage(store, "all")).used, (await usage(store, "two")).used) == (1, 1)


async def test_an_obliterated_queue_keeps_its_limits_declared(store):
    await declare(store, "it", Rate(1, per="1h"), queues=["line"])

    await store.obliterate("line", False)

    await add_many(store, 3)
    assert len((await claim(store, 3)).jobs) == 1


async def test_an_obliterated_queue_is_no_longer_paused(store):
    await store.pause("line", None, None, True)
    await store.pause("line", "work", None, True)
    await store.pause("line", None, "acme", True)

    await store.obliterate("line", False)

    await add(store, "a", group="acme")
    assert claimed(await claim(store)) == ["a"]


async def test_an_obliterated_queue_forgets_its_starts_and_turns(store):
    await add_many(store, 50, group="old")
    await start(store, 30)
    await store.obliterate("line", True)

    await store.insert([a_job(id, group=id[:3]) for id in ("old 1", "old 2", "new 1", "new 2")])

    assert await store.starts("line", None) == []
    assert claimed(await claim(store, 4)) == ["old 1", "new 1", "old 2", "new 2"]


async def test_an_obliterated_queue_frees_its_unique_keys(store):
    await add(store, "a", unique="key")

    await store.obliterate("line", False)

    (inserted,) = await store.insert([a_job("b", unique="key")])
    assert inserted.existed is False


async def test_obliterating_touches_no_other_queue(store):
    ids = await one_in_each_state(store, "lines")
    await store.pause("lines", None, None, True)
    await add(store, "a", queue="l*", delay="1h")

    assert await store.obliterate("l*", True) == 1

    assert await left_in(store, ids) == set(STATES)
    assert claimed(await claim(store, queues=["lines"])) == []


async def test_delayed_jobs_of_an_obliterated_queue_never_start(store, clock):
    await add(store, "a", delay="1h")
    await store.obliterate("line", False)

    clock.to(clock.now() + 2 * HOUR)

    assert claimed(await claim(store)) == []
