"""Limits that no job meets by itself: what a limiter declares for code that asks for it by name."""

from __future__ import annotations

from paceline.limits import Concurrency, Limit, Rate
from paceline.stores.interface import Target

from .builders import MINUTE, add_many, claim, claimed, declare, start, usage


async def test_no_job_meets_a_limit_for_code(store):
    await store.set_limits([Limit.for_code("api", Concurrency(1))])
    await add_many(store, 5)

    assert len((await claim(store, 5)).jobs) == 5


async def test_code_that_asks_for_it_meets_it(store):
    await store.set_limits([Limit.for_code("api", Concurrency(1))])

    grants = [await store.acquire([Target("api")], permit, MINUTE) for permit in ("a", "b")]

    assert [grant.granted for grant in grants] == [True, False]


async def test_a_limit_for_code_is_given_back_as_it_was_declared(store):
    limit = Limit.for_code("api", Rate(5, per="1s"))

    await store.set_limits([limit])

    assert await store.limits() == [limit]


async def test_declared_for_jobs_later_it_counts_both_together(store):
    await store.set_limits([Limit.for_code("api", Rate(3, per="1h"))])
    await store.acquire([Target("api")], "permit", MINUTE)
    await add_many(store, 5)

    await declare(store, "api", Rate(3, per="1h"), tasks=["work"])

    assert await store.limits() == [Limit("api", Rate(3, per="1h"), tasks=["work"])]
    assert len((await claim(store, 5)).jobs) == 2


async def test_declared_for_jobs_already_it_keeps_the_jobs_and_takes_the_numbers(store):
    await declare(store, "api", Rate(1, per="1h"), tasks=["work"])
    await add_many(store, 5)
    await start(store)
    assert claimed(await claim(store, 5)) == []

    await store.set_limits([Limit.for_code("api", Rate(3, per="1h"))])

    assert await store.limits() == [Limit("api", Rate(3, per="1h"), tasks=["work"])]
    assert len((await claim(store, 5)).jobs) == 2
    assert (await usage(store, "api")).used == 3
