"""Step 2, claim: the smallest guard of a job's own rates comes with it: its worker knows when it is too late."""

from __future__ import annotations

from paceline.clock import NEVER
from paceline.limits import Concurrency, Delay, Rate
from paceline.stores.interface import Override

from .builders import HOUR, add, ask, declare, start


async def guard_of(store, **changes) -> int:
    (job,) = await start(store, **changes)
    return job.guard


async def test_a_job_without_a_rate_is_never_too_late(store):
    await declare(store, "mail", Concurrency(5) & Delay("1us"))
    await add(store, "a")

    assert await guard_of(store) == NEVER


async def test_a_guard_of_zero_counts_stamps_alone(store):
    await declare(store, "mail", Rate(5, per="1s", guard=0))
    await add(store, "a")

    assert await guard_of(store) == NEVER


async def test_a_clock_that_a_test_moves_needs_no_guard(store):
    await declare(store, "mail", Rate(5, per="1s"))
    await add(store, "a")

    assert (store.least_guard, await guard_of(store)) == (0, NEVER)


async def test_the_smallest_guard_of_its_own_rates_comes_with_a_job(store):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms") & Rate(9, per="1m", guard="70ms"))
    await declare(store, "all", Rate(5, per="1s", guard="60ms") & Rate(9, per="1m", guard=0))
    await declare(store, "bill", Rate(5, per="1s", guard="20ms"), tasks=["bill"])
    await add(store, "a")

    assert await guard_of(store) == 50_000


async def test_every_job_of_a_claim_has_its_own_guard(store):
    await declare(store, "bill", Rate(5, per="1s", guard="20ms"), tasks=["bill"])
    await declare(store, "tenant", Rate(5, per="1s", guard="10ms"), by="group")
    await add(store, "plain")
    await add(store, "bill", task="bill")
    await add(store, "tenant", task="bill", group="acme")

    jobs = await start(store, 3)

    assert {job.id: job.guard for job in jobs} == {"plain": NEVER, "bill": 20_000, "tenant": 10_000}


async def test_a_limit_that_the_worker_brings_along_counts(store):
    await declare(store, "worker", Rate(5, per="1s", guard="20ms"), tasks=["other"])
    await add(store, "a")

    assert await guard_of(store, also=("worker",)) == 20_000


async def test_a_guard_of_the_operator_holds_until_it_ends(store, clock):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms"))
    await store.override(Override(limit="mail", kind=Rate(5, per="1s", guard="10ms")), HOUR)
    await add(store, "a", "b")
    during = await guard_of(store)

    clock.advance("1h")

    assert (during, await guard_of(store)) == (10_000, 50_000)


async def test_a_claim_that_is_asked_again_gives_the_guard_it_had(store):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms"))
    await add(store, "a")
    await store.claim(ask(claim_id="one"))
    await declare(store, "mail", Rate(5, per="1s", guard="90ms"))

    again = await store.claim(ask(claim_id="one"))

    assert [(job.id, job.guard) for job in again.jobs] == [("a", 50_000)]


async def test_a_lowered_guard_counts_for_new_starts_only(store, clock):
    await declare(store, "mail", Rate(1, per="1s", guard="100ms"))
    await add(store, "a", "b", "c")
    await start(store)

    await declare(store, "mail", Rate(1, per="1s", guard="20ms"))

    # The handler of the first may begin up to 100 ms after its start.
    begin = clock.now()
    clock.to(begin + 1_099_999)
    assert (await store.claim(ask())).jobs == []
    clock.to(begin + 1_100_000)
    await start(store)
    clock.to(begin + 1_100_000 + 1_020_000)
    await start(store)
