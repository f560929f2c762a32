"""Leases: what a dead worker held comes back exactly when its lease ends, once."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Lease, Outcome, Target, WorkerRecord

from .builders import (
    MINUTE,
    SECOND,
    a_note,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    ending,
    finish,
    opens_exactly_at,
    read,
    start,
    start_all,
    state_of,
    usage,
)


def leases(jobs) -> list[Lease]:
    return [Lease(job.id, job.fence) for job in jobs]


# the end of a lease


async def test_a_job_is_given_again_exactly_when_its_lease_ends(store, clock):
    await add(store, "a")
    (dead,) = await start(store, worker="dead", lease="30s")

    job = await opens_exactly_at(store, clock, clock.now() + 30 * SECOND, worker="heir")

    assert (job.id, job.worker, job.fence > dead.fence) == ("a", "heir", True)


async def test_the_end_of_a_lease_is_a_crash_and_uses_no_attempt(store, clock):
    await add(store, "a", attempts=1)
    await start(store, lease="30s")
    clock.advance("30s")

    (job,) = await start(store)

    assert (job.attempts_made, job.crashes, job.returns) == (1, 1, 0)


async def test_a_job_whose_lease_ended_goes_to_its_old_place(store, clock):
    await add(store, "a", "b")
    await start(store, lease="30s")
    await add(store, "c")

    clock.advance("30s")

    assert claimed(await claim(store, 3)) == ["a", "b", "c"]


async def test_a_job_that_lost_its_worker_three_times_fails(store, clock):
    await add(store, "a", attempts=9)
    for _ in range(3):
        await start(store, lease="30s")
        clock.advance("30s")

    assert claimed(await claim(store)) == []
    record = await read(store, "a")
    assert (record.state, record.crashes, record.finished_at) == (JobState.FAILED, 3, clock.now())
    assert "crashed" in record.error


async def test_crashes_of_both_kinds_add_up(store, clock):
    await add(store, "a", attempts=9)
    (job,) = await start(store)
    await finish(store, job, Outcome.CRASHED)
    await start(store, lease="30s")
    clock.advance("30s")
    (job,) = await start(store)

    await finish(store, job, Outcome.CRASHED)

    assert await state_of(store, "a") == JobState.FAILED


async def test_a_cancel_that_was_asked_before_the_worker_died_is_kept(store, clock):
    await add(store, "a")
    await start(store, lease="30s")
    await store.move(["a"], Move.CANCEL)
    clock.advance("30s")

    assert claimed(await claim(store)) == []
    assert await state_of(store, "a") == JobState.CANCELLED


async def test_every_claim_has_its_own_lease(store, clock):
    await add(store, "long", "short")
    await start(store, lease="60s")
    await start(store, lease="20s")

    assert (await claim(store)).ask_again_at == clock.now() + 20 * SECOND
    clock.advance("20s")
    assert claimed(await claim(store, 2)) == ["short"]


async def test_a_lease_that_has_ended_is_nothing_to_ask_again_for(store, clock):
    await add(store, "a")
    (job,) = await start(store, lease="30s")

    await finish(store, job)

    assert (await claim(store)).ask_again_at == NEVER


async def test_a_lease_that_ended_lives_until_a_claim_takes_it_back(store, clock):
    await add(store, "a")
    (job,) = await start(store, lease="30s")
    clock.advance("1h")

    await finish(store, job, result=b"42")

    record = await read(store, "a")
    assert (record.state, record.result, record.crashes) == (JobState.COMPLETED, b"42", 0)


async def test_a_lease_that_ended_may_be_extended_until_a_claim_takes_it_back(store, clock):
    await add(store, "a")
    jobs = await start(store, lease="30s")
    clock.advance("1h")

    extended = await store.extend("worker", leases(jobs), 10 * SECOND)

    assert extended.lost == []
    await opens_exactly_at(store, clock, clock.now() + 10 * SECOND)


async def test_a_finish_sent_along_with_the_claim_comes_before_the_lease_is_taken_back(store, clock):
    await add(store, "a")
    (job,) = await start(store, lease="30s")
    clock.advance("30s")

    answer = await claim(store, finishes=[ending(job)])

    assert (answer.jobs, answer.lost) == ([], [])
    assert await state_of(store, "a") == JobState.COMPLETED


# extending


async def test_an_extension_counts_from_now(store, clock):
    await add(store, "a")
    jobs = await start(store, lease="30s")
    clock.advance("20s")

    extended = await store.extend("worker", leases(jobs), 30 * SECOND)

    assert (extended.lost, extended.cancel) == ([], [])
    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_an_extended_job_keeps_its_fence(store, clock):
    await add(store, "a")
    (job,) = await start(store, lease="30s")

    await store.extend("worker", leases([job]), 60 * SECOND)
    clock.advance("59s")
    await claim(store)

    await finish(store, job)


async def test_only_the_leases_that_are_named_are_extended(store, clock):
    await add(store, "a", "b")
    (job, _) = await start(store, 2, lease="30s")

    await store.extend("worker", leases([job]), MINUTE)

    clock.advance("30s")
    assert claimed(await claim(store, 2)) == ["b"]


async def test_a_worker_that_lost_a_lease_learns_it_and_takes_nothing_from_the_owner(store, clock):
    await add(store, "a")
    stale = await start(store, worker="zombie", lease="30s")
    clock.advance("30s")
    await start(store, worker="owner", lease="30s")

    extended = await store.extend("zombie", leases(stale), 1)

    assert (extended.lost, extended.cancel) == (["a"], [])
    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_stranger_who_has_no_fence_extends_nothing(store, clock):
    await add(store, "a")
    (job,) = await start(store, lease="30s")

    extended = await store.extend("stranger", [Lease("a", job.fence - 1), Lease("a", job.fence + 1)], MINUTE)

    assert extended.lost == ["a", "a"]
    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.RELEASED, Outcome.RETRY])
async def test_a_run_that_ended_has_no_lease_to_extend(store, outcome):
    await add(store, "a", attempts=3)
    (job,) = await start(store)
    await finish(store, job, outcome)
    before = await read(store, "a")

    assert (await store.extend("worker", leases([job]), MINUTE)).lost == ["a"]
    assert await read(store, "a") == before


async def test_good_extensions_go_through_beside_lost_ones(store, clock):
    await add(store, "a")
    jobs = await start(store, lease="30s")

    extended = await store.extend("worker", [Lease("nobody", 1), *leases(jobs)], MINUTE)

    assert extended.lost == ["nobody"]
    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_an_extension_says_that_the_worker_lives(store, clock):
    await store.register(WorkerRecord(id="worker", queues=("line",)))
    clock.advance("10s")

    await store.extend("worker", [], MINUTE)

    assert [(each.id, each.seen_at) for each in await store.workers()] == [("worker", clock.now())]


async def test_a_note_is_accepted_until_the_lease_is_taken_back(store, clock):
    await add(store, "a")
    (job,) = await start(store, lease="30s")
    clock.advance("30s")
    before = await store.note([a_note(job, progress=50)])

    await claim(store)

    assert (before, await store.note([a_note(job, progress=60)])) == ([], ["a"])
    assert (await read(store, "a")).progress == 50


# what the lease held


async def test_a_slot_comes_back_exactly_when_the_lease_of_its_job_ends(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", "b")
    await start(store, lease="30s")

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)

    assert (await usage(store, "all")).used == 1
    assert claimed(await claim(store, 5)) == []


async def test_a_slot_of_a_group_comes_back_exactly_when_the_lease_of_its_job_ends(store, clock):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", "b", group="acme")
    await start(store, lease="30s")

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)

    assert (await usage(store, "tenant", "acme")).used == 1


async def test_a_slot_comes_back_when_only_another_queue_is_served(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", queue="one")
    await add(store, "b", queue="two")
    await start(store, queues=["one"], lease="30s")

    job = await opens_exactly_at(store, clock, clock.now() + 30 * SECOND, queues=["two"])

    assert job.id == "b"


async def test_the_slot_of_a_zombie_is_not_freed_twice(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", "b")
    (stale,) = await start(store, lease="30s")
    clock.advance("30s")
    await start(store)

    await store.finish([ending(stale)])

    assert claimed(await claim(store, 5)) == []


async def test_a_rate_gets_nothing_back_from_a_dead_worker(store, clock):
    await declare(store, "all", Rate(1, per="1m"))
    await add(store, "a", "b")
    first = clock.now()
    await start(store, lease="30s")
    clock.advance("30s")

    await opens_exactly_at(store, clock, first + MINUTE)


async def test_all_jobs_of_a_dead_worker_come_back(store, clock):
    ids = await add_many(store, 20)
    await start(store, 20, worker="dead", lease="30s")
    clock.advance("30s")

    assert claimed(await claim(store, 20)) == ids


# permits


async def test_a_job_gets_the_slot_of_a_permit_exactly_when_its_lease_ends(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a")
    await store.acquire([Target("all")], "permit", 30 * SECOND)

    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_permit_gets_the_slot_of_a_permit_exactly_when_its_lease_ends(store, clock):
    await declare(store, "all", Concurrency(1))
    await store.acquire([Target("all")], "dead", 30 * SECOND)
    clock.to(clock.now() + 30 * SECOND - 1)
    before = await store.acquire([Target("all")], "next", MINUTE)

    clock.to(clock.now() + 1)

    assert (before.granted, (await store.acquire([Target("all")], "next", MINUTE)).granted) == (False, True)


async def test_a_permit_gets_the_slot_of_a_job_exactly_when_its_lease_ends(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a")
    await start(store, lease="30s")
    clock.to(clock.now() + 30 * SECOND - 1)
    before = await store.acquire([Target("all")], "next", MINUTE)

    clock.to(clock.now() + 1)

    assert (before.granted, (await store.acquire([Target("all")], "next", MINUTE)).granted) == (False, True)


async def test_whoever_is_refused_a_permit_is_told_when_the_lease_in_its_way_ends(store, clock):
    await declare(store, "all", Concurrency(1))
    await store.acquire([Target("all")], "dead", 30 * SECOND)

    grant = await store.acquire([Target("all")], "next", MINUTE)

    assert (grant.granted, grant.until) == (False, clock.now() + 30 * SECOND)


async def test_a_permit_does_not_wait_behind_a_crowd_of_ended_leases(store, clock):
    await declare(store, "all", Concurrency(1), queues=["other"])
    await add_many(store, 1000)
    await start_all(store, 500, lease="10s")
    await store.acquire([Target("all")], "dead", 30 * SECOND)
    clock.advance("30s")

    grants = [await store.acquire([Target("all")], "next", MINUTE)]
    while not grants[-1].granted and len(grants) < 100:
        assert grants[-1].until <= grants[-1].now
        grants.append(await store.acquire([Target("all")], "next", MINUTE))

    assert grants[-1].granted


async def test_a_permit_may_be_extended(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a")
    await store.acquire([Target("all")], "permit", 30 * SECOND)
    clock.advance("20s")

    extended = await store.extend("worker", [Lease("permit", 0)], 30 * SECOND)

    assert extended.lost == []
    await opens_exactly_at(store, clock, clock.now() + 30 * SECOND)


async def test_a_permit_that_was_taken_back_is_lost(store, clock):
    await declare(store, "all", Concurrency(1))
    await store.acquire([Target("all")], "permit", 30 * SECOND)
    clock.advance("30s")
    await claim(store)

    assert (await store.extend("worker", [Lease("permit", 0)], MINUTE)).lost == ["permit"]


async def test_a_permit_that_was_taken_back_frees_nothing_when_it_is_given_back(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", "b")
    await store.acquire([Target("all")], "permit", 30 * SECOND)
    clock.advance("30s")
    jobs = await start(store)

    await store.give_back(["permit"])

    assert claimed(await claim(store)) == []
    await complete(store, jobs)
