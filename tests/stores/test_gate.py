"""The gate: late starts are decided again, are open until their handlers begin, and count from there."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.job import ACTIVE, COMPLETED, WAITING
from paceline.limits import Concurrency, Delay, EvenlySpaced, Rate
from paceline.stores.interface import Begun, Decided, Lease, Outcome, Override, Target

from .builders import (
    MINUTE,
    SECOND,
    add,
    add_many,
    ask,
    claim,
    claimed,
    complete,
    declare,
    finish,
    hold,
    read,
    start,
    start_all,
    state_of,
    usage,
)

GUARD = "20ms"
TWO = Rate(2, per="1s", guard=GUARD)
WINDOW = 1_020_000


def leases(*jobs) -> list[Lease]:
    return [Lease(job.id, job.fence) for job in jobs]


async def decide(store, *jobs) -> Decided:
    return await store.decide_again(leases(*jobs))


async def begun(store, *jobs, ago: int = 0) -> None:
    assert await store.begun([Begun(job.id, job.fence, ago) for job in jobs]) == []


async def starts(store) -> list[tuple[str, int]]:
    return [(start.job_id, start.at) for start in await store.starts("line", None)]


# late


async def test_a_late_start_that_is_admitted_is_open_and_counts_as_long_as_it_is(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b", "c")
    late, _ = await start(store, 2)
    clock.advance("50ms")

    assert await decide(store, late) == Decided(refused=[], lost=[])

    found = await usage(store, "mail")
    assert (found.used, found.open) == (2, 1)
    clock.advance("1s")
    # The other one has left its window; the open one is in every window.
    assert (await usage(store, "mail")).used == 1
    clock.advance("10s")
    assert claimed(await claim(store, 2)) == ["c"]


async def test_a_start_counts_from_the_instant_at_which_it_is_said_to_have_begun(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a", "b")
    (late,) = await start(store)
    clock.advance("50ms")
    await decide(store, late)
    refused = await claim(store)
    clock.advance("30ms")
    await begun(store, late)
    began = clock.now()

    assert (claimed(refused), (await usage(store, "mail")).open) == ([], 0)
    assert await starts(store) == [("a", began)]
    assert (await read(store, "a")).started_at == began
    clock.to(began + WINDOW - 1)
    assert claimed(await claim(store)) == []
    clock.to(began + WINDOW)
    assert claimed(await claim(store)) == ["b"]


async def test_nobody_is_woken_at_an_instant_that_nobody_knows(store):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a", "b")
    (late,) = await start(store)
    await decide(store, late)

    refused = await claim(store)

    assert refused.ask_again_at >= (await read(store, "a")).started_at + 60 * MINUTE  # the end of its lease
    await begun(store, late)
    assert (await claim(store)).ask_again_at == refused.now + WINDOW


async def test_a_late_start_that_is_refused_goes_back_uncharged_to_its_place(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b", "c", attempts=2)
    jobs = await start(store, 2)
    clock.advance("50ms")
    await hold(store, "mail", for_="1s")

    assert await decide(store, *jobs) == Decided(refused=["a", "b"], lost=[])

    job = await read(store, "a")
    assert (job.state, job.attempts_made) == (WAITING, 0)
    assert (await usage(store, "mail")).used == 0
    assert await starts(store) == []
    clock.advance("1s")
    assert claimed(await claim(store, 2)) == ["a", "b"]


async def test_a_limit_that_was_lowered_meanwhile_decides_with_its_new_numbers(store, clock):
    await declare(store, "mail", Rate(4, per="1s", guard=GUARD))
    await add_many(store, 4)
    jobs = await start(store, 4)
    clock.advance("50ms")
    await store.override(Override(limit="mail", kind=Rate(3, per="1s", guard=GUARD)), None)

    decided = await decide(store, *jobs)

    assert decided.refused == [jobs[0].id]
    assert (await usage(store, "mail")).used == 3


async def test_a_cost_that_no_longer_fits_is_refused(store, clock):
    await declare(store, "mail", Rate(5, per="1s", guard=GUARD))
    await add(store, "a", cost=5)
    (job,) = await start(store)
    await store.override(Override(limit="mail", kind=Rate(3, per="1s", guard=GUARD)), None)

    assert (await decide(store, job)).refused == ["a"]


async def test_its_own_charge_is_taken_out_with_its_cost(store, clock):
    await declare(store, "mail", Rate(10, per="1s", guard=GUARD))
    await add(store, "a", cost=7)
    await add(store, "b", cost=3)
    a, b = await start(store, 2)
    clock.advance("50ms")

    assert (await decide(store, a, b)).refused == []

    assert (await usage(store, "mail")).open == 10
    await begun(store, b)
    found = await usage(store, "mail")
    assert (found.used, found.open) == (10, 7)


async def test_other_starts_of_the_same_instant_stay_where_they_are(store, clock):
    await declare(store, "mail", Rate(3, per="1s", guard=GUARD))
    await add_many(store, 5)
    first, *_ = await start(store, 3)
    stamped = clock.now()
    clock.advance("50ms")
    await decide(store, first)
    await begun(store, first)
    assert (await usage(store, "mail")).used == 3

    clock.to(stamped + WINDOW)

    assert len((await claim(store, 5)).jobs) == 2
    clock.to(stamped + 50_000 + WINDOW)
    assert (await usage(store, "mail")).used == 2


async def test_every_rate_of_every_limit_of_a_job_is_decided_again(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD) & Rate(3, per="1m", guard=GUARD))
    await declare(store, "tenant", Rate(2, per="10s", guard=GUARD), by="group")
    await add(store, "a", group="acme")
    (job,) = await start(store)
    clock.advance("1h")

    await decide(store, job)
    clock.advance("1h")

    assert ((await usage(store, "mail")).used, (await usage(store, "tenant", "acme")).used) == (1, 1)
    await begun(store, job)
    clock.advance("5s")
    assert ((await usage(store, "mail")).used, (await usage(store, "tenant", "acme")).used) == (1, 1)
    clock.advance("6s")
    assert ((await usage(store, "mail")).used, (await usage(store, "tenant", "acme")).used) == (1, 0)


async def test_slots_gaps_pauses_and_reservations_are_not_asked_again(store, clock):
    kind = Rate(5, per="1m", guard=GUARD) & Concurrency(1) & Delay("1s") & EvenlySpaced(1, per="2s")
    await declare(store, "mail", kind)
    await add(store, "a")
    (job,) = await start(store)
    clock.advance("50ms")
    await store.pause("line", None, None, True)

    assert await decide(store, job) == Decided(refused=[], lost=[])

    await begun(store, job)
    await complete(store, [job])
    await store.pause("line", None, None, False)
    await add(store, "b")
    # The gap goes on from the claim.
    assert (await claim(store)).ask_again_at == job.started_at + 2 * SECOND


async def test_an_answer_that_was_lost_can_be_asked_for_again(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b")
    a, b = await start(store, 2)
    clock.advance("50ms")
    await decide(store, a, b)

    assert await decide(store, a, b) == Decided(refused=[], lost=[])

    assert (await usage(store, "mail")).open == 2
    await begun(store, a, b)
    began = clock.now()
    clock.advance("100ms")
    await begun(store, a, b)
    assert await decide(store, a) == Decided(refused=[], lost=[])
    assert {at for _, at in await starts(store)} == {began}
    found = await usage(store, "mail")
    assert (found.used, found.open) == (2, 0)


async def test_a_lease_that_is_lost_changes_nothing(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b")
    a, b = await start(store, 2)
    await complete(store, [a])
    stale = [Lease("a", a.fence), Lease("b", b.fence + 1), Lease("nobody", 1)]

    assert (await store.decide_again(stale)).lost == ["a", "b", "nobody"]
    assert await store.begun([Begun(each.id, each.fence) for each in stale]) == ["a", "b", "nobody"]

    assert await starts(store) == [("a", a.started_at), ("b", b.started_at)]
    found = await usage(store, "mail")
    assert (found.used, found.open) == (2, 0)


# begun without being asked


async def test_a_handler_that_began_late_after_all_counts_from_there(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a", "b")
    (job,) = await start(store)
    clock.advance("300ms")

    await begun(store, job)

    assert (await claim(store)).ask_again_at == clock.now() + WINDOW
    assert await starts(store) == [("a", clock.now())]


async def test_a_start_counts_from_when_it_began_however_late_that_is_said(store, clock):
    await declare(store, "mail", Rate(2, per="1s", guard=GUARD))
    await add(store, "a", "b", "c", "d")
    (a,) = await start(store)
    clock.advance("100ms")
    (b,) = await start(store)
    clock.advance("400ms")

    await begun(store, a, ago=450_000)

    began = clock.now() - 450_000
    assert sorted(await starts(store)) == [("a", began), ("b", b.started_at)]
    assert (await read(store, "a")).started_at == began
    clock.to(began + WINDOW - 1)
    assert claimed(await claim(store)) == []
    clock.to(began + WINDOW)
    assert claimed(await claim(store, 4)) == ["c"]
    clock.to(b.started_at + WINDOW - 1)
    assert claimed(await claim(store)) == []
    clock.to(b.started_at + WINDOW)
    assert claimed(await claim(store)) == ["d"]


async def test_no_start_counts_from_before_its_claim_or_from_the_future(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b")
    a, b = await start(store, 2)
    clock.advance("10ms")

    await begun(store, a, ago=60_000_000)
    await begun(store, b, ago=-5_000)

    assert await starts(store) == [("a", a.started_at), ("b", clock.now())]


# ends


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED])
async def test_a_run_that_ends_has_begun(store, clock, outcome):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a", "b", attempts=3)
    (job,) = await start(store)
    clock.advance("50ms")
    await decide(store, job)
    clock.advance("1s")

    await finish(store, job, outcome)

    found = await usage(store, "mail")
    assert (found.used, found.open) == (1, 0)
    assert (await claim(store)).ask_again_at == clock.now() + WINDOW
    assert await starts(store) == [("a", clock.now())]


async def test_the_end_of_a_lease_frees_an_open_start(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a", "b")
    (job,) = await start(store, lease="30s")
    await decide(store, job)
    waits = await claim(store)

    clock.to(waits.ask_again_at)

    assert waits.ask_again_at == job.started_at + 30 * SECOND
    assert claimed(await claim(store)) == ["a"]
    assert (await usage(store, "mail")).open == 0


async def test_the_end_of_a_lease_frees_its_own_open_start_only(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b", "c")
    (a,) = await start(store, lease="30s")
    (b,) = await start(store)
    await decide(store, a, b)

    clock.advance("30s")

    assert claimed(await claim(store, 3)) == ["a"]
    assert (await usage(store, "mail")).open == 1


async def test_a_queue_that_is_obliterated_leaves_nothing_open(store):
    await declare(store, "mail", TWO)
    await add(store, "a")
    (job,) = await start(store)
    await decide(store, job)

    await store.obliterate("line", True)

    assert (await usage(store, "mail")).open == 0


async def test_a_limit_that_was_dropped_is_asked_nothing(store):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a")
    (job,) = await start(store)
    await store.drop_limit("mail")
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))

    assert await decide(store, job) == Decided(refused=[], lost=[])
    await begun(store, job)

    found = await usage(store, "mail")
    assert (found.used, found.open) == (0, 0)


async def test_clearing_a_limit_forgets_no_open_start(store):
    await declare(store, "mail", TWO)
    await add(store, "a", "b")
    a, _ = await start(store, 2)
    await decide(store, a)

    await store.clear("mail", None)

    found = await usage(store, "mail")
    assert (found.used, found.open) == (1, 1)


async def test_what_was_forgotten_is_not_taken_out(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b", "c")
    (a,) = await start(store)
    clock.advance("1ms")
    await store.clear("mail", None)
    await start(store)
    clock.advance("1ms")

    await begun(store, a)

    assert (await usage(store, "mail")).used == 2


async def test_open_starts_stay_open_under_other_numbers(store, clock):
    await declare(store, "mail", TWO)
    await add(store, "a", "b", "c")
    a, _ = await start(store, 2)
    await decide(store, a)

    await store.override(Override(limit="mail", kind=Concurrency(5)), None)
    clock.advance("1h")
    await store.lift("mail", None)

    found = await usage(store, "mail")
    assert (found.used, found.open) == (1, 1)
    await begun(store, a)
    assert (await usage(store, "mail")).used == 1


# who waits


async def test_what_a_refused_start_gives_back_is_there_for_others(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await declare(store, "slow", Rate(1, per="1h", guard=GUARD), tasks=["slow"])
    await add(store, "a", task="slow")
    await add(store, "b", task="quick")
    (job,) = await start(store)
    clock.advance("50ms")
    assert claimed(await claim(store)) == []
    await hold(store, "slow", for_="1h")

    assert (await decide(store, job)).refused == ["a"]

    assert claimed(await claim(store)) == ["b"]


async def test_a_group_that_waits_for_an_open_start_is_served_once_it_began(store, clock):
    await declare(store, "tenant", Rate(1, per="1s", guard=GUARD), by="group")
    await add(store, "a", "b", group="acme")
    (job,) = await start(store)
    await decide(store, job)
    assert claimed(await claim(store)) == []
    clock.advance("10s")
    assert claimed(await claim(store)) == []

    await begun(store, job)

    assert (await claim(store)).ask_again_at == clock.now() + WINDOW
    clock.advance("1.02s")
    assert claimed(await claim(store)) == ["b"]


async def test_a_big_job_waits_for_open_starts_too(store, clock):
    await declare(store, "mail", Rate(4, per="1s", guard=GUARD))
    await add(store, "small")
    (small,) = await start(store)
    await decide(store, small)
    await add(store, "big", cost=4)
    clock.advance("3s")
    assert claimed(await claim(store)) == []

    await begun(store, small)
    clock.advance("1.02s")

    assert claimed(await claim(store)) == ["big"]


async def test_explain_counts_open_starts(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard=GUARD))
    await add(store, "a", "b")
    (job,) = await start(store)
    await decide(store, job)
    clock.advance("3s")

    standing = await store.standing("b")

    (found,) = standing.keys
    assert (found.used, found.open, found.opens_at) == (1, 1, NEVER)
    # It begins now at the earliest.
    assert standing.earliest == clock.now() + WINDOW


async def test_everything_that_starts_late_and_begins_still_ends(store, clock):
    await declare(store, "mail", Rate(3, per="1s", guard=GUARD))
    await add_many(store, 12)
    done = 0
    for _ in range(60):
        jobs = await start_all(store)
        clock.advance("60ms")
        decided = await decide(store, *jobs)
        jobs = [job for job in jobs if job.id not in decided.refused]
        clock.advance("40ms")
        await begun(store, *jobs)
        await complete(store, jobs)
        done += len(jobs)
        if done == 12:
            break
        clock.advance("100ms")
    assert done == 12
    stamps = sorted(at for _, at in await starts(store))
    assert all(later - earlier >= WINDOW for earlier, later in zip(stamps, stamps[3:], strict=False))


# permits


async def acquire(store, permit: str = "permit", cost: int = 1, **more):
    return await store.acquire([Target("api", None, cost)], permit, MINUTE, **more)


async def test_a_grant_carries_the_guard_of_its_limits(store):
    await declare(store, "api", Rate(2, per="1s", guard=GUARD))
    await declare(store, "slots", Concurrency(1))

    assert (await acquire(store)).guard == 20_000
    assert (await store.acquire([Target("slots")], "other", MINUTE)).guard == NEVER
    both = await store.acquire([Target("api"), Target("slots")], "third", MINUTE)
    assert (both.granted, both.guard) == (False, NEVER)


async def test_a_permit_that_comes_late_is_decided_again_and_open_until_it_began(store, clock):
    await declare(store, "api", Rate(1, per="1s", guard=GUARD))
    grant = await acquire(store)
    clock.advance("50ms")

    late = await acquire(store, late=grant.now)

    assert (late.granted, late.leased, late.guard) == (True, True, NEVER)
    clock.advance("5s")
    assert not (await acquire(store, "other")).granted
    assert (await usage(store, "api")).open == 1
    assert await store.begun([Begun("permit", 0)]) == []
    assert (await acquire(store, "other")).until == clock.now() + WINDOW
    await store.give_back(["permit"])
    clock.advance("1.02s")
    assert (await acquire(store, "other")).granted


async def test_a_late_permit_that_is_refused_is_charged_nothing(store, clock):
    await declare(store, "api", Rate(1, per="1s", guard=GUARD) & Concurrency(1))
    grant = await acquire(store)
    clock.advance("50ms")
    await hold(store, "api", for_="1s")

    late = await acquire(store, late=grant.now)

    assert (late.granted, late.until) == (False, clock.now() + SECOND)
    clock.advance("1s")
    assert (await usage(store, "api")).used == 0
    assert (await acquire(store, "other")).granted


async def test_a_late_permit_keeps_its_slot(store, clock):
    await declare(store, "api", Rate(5, per="1s", guard=GUARD) & Concurrency(1) & Delay("10s"))
    grant = await acquire(store)
    clock.advance("50ms")

    late = await acquire(store, late=grant.now)

    assert late.granted
    assert not (await acquire(store, "other")).granted
    await store.give_back(["permit"])
    clock.advance("10s")
    assert (await acquire(store, "other")).granted


async def test_a_permit_that_is_given_back_has_begun(store, clock):
    await declare(store, "api", Rate(1, per="1s", guard=GUARD))
    grant = await acquire(store)
    await acquire(store, late=grant.now)
    clock.advance("3s")

    await store.give_back(["permit"])

    found = await usage(store, "api")
    assert (found.used, found.open) == (1, 0)


async def test_the_end_of_its_lease_frees_an_open_permit(store, clock):
    await declare(store, "api", Rate(1, per="1s", guard=GUARD))
    grant = await acquire(store)
    await acquire(store, late=grant.now)

    clock.advance("1m")

    assert (await acquire(store, "other")).granted
    assert (await usage(store, "api")).open == 0


async def test_open_starts_of_jobs_count_for_permits(store, clock):
    await declare(store, "api", Rate(1, per="1s", guard=GUARD))
    await add(store, "a")
    (job,) = await start(store)
    await decide(store, job)
    clock.advance("3s")

    assert not (await acquire(store)).granted
    assert await state_of(store, "a") is ACTIVE
    await complete(store, [job])
    assert await state_of(store, "a") is COMPLETED


async def test_a_late_job_among_many_queues_and_slots_is_found(store, clock):
    await declare(store, "mail", Rate(50, per="1s", guard=GUARD))
    for queue in ("line", "other"):
        await add_many(store, 20, queue=queue)
    jobs = (await store.claim(ask(40, queues=["line", "other"]))).jobs
    clock.advance("50ms")

    assert (await decide(store, *jobs)).refused == []

    assert (await usage(store, "mail")).open == 40
    await begun(store, *jobs[:20])
    await complete(store, jobs)
    assert (await usage(store, "mail")).used == 40
