"""Step 2, claim: the smallest guard comes along, so that a worker can tell when a handler begins too late."""

from __future__ import annotations

from paceline.clock import NEVER
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Override

from .builders import HOUR, add, claim, declare


async def test_without_a_guard_no_handler_begins_too_late(store):
    await declare(store, "mail", Rate(5, per="1s") & Concurrency(5))
    await add(store, "a")

    assert (await claim(store)).guard == NEVER


async def test_a_claim_tells_the_smallest_guard(store):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms"))
    await declare(store, "bill", Concurrency(5) & Rate(5, per="1s", guard="20ms"), tasks=["bill"])
    await add(store, "a")

    assert (await claim(store)).guard == 20_000


async def test_another_guard_is_told_at_once(store):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms"))
    await claim(store)

    await declare(store, "mail", Rate(5, per="1s", guard="70ms"))

    assert (await claim(store)).guard == 70_000


async def test_a_guard_of_the_operator_is_told_until_it_ends(store, clock):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms"))
    await store.override(Override(limit="mail", kind=Rate(5, per="1s", guard="10ms")), HOUR)
    during = (await claim(store)).guard

    clock.advance("1h")

    assert (during, (await claim(store)).guard) == (10_000, 50_000)


async def test_the_guard_of_a_dropped_limit_is_gone(store):
    await declare(store, "mail", Rate(5, per="1s", guard="50ms"))
    await claim(store)

    await store.drop_limit("mail")

    assert (await claim(store)).guard == NEVER
