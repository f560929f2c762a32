"""Permits that are waited for: one that lacks only room keeps it free, as a big job does."""

from __future__ import annotations

from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Target

from .builders import MINUTE, SECOND, add, claim, claimed, declare, hold, usage


async def ask_for(store, cost: int, permit: str, *, waits: bool = False):
    return await store.acquire([Target("tokens", cost=cost)], permit, MINUTE, waits=waits)


async def a_big_permit_that_lacks_room(store, clock, *, waits: bool = True) -> int:
    """Of 3 a minute 1 is taken, at now − 10 s; "big" needs all 3. Returns when it fits."""
    await declare(store, "tokens", Rate(3, per="1m"))
    assert (await ask_for(store, 1, "first")).granted
    clock.advance("10s")
    refused = await ask_for(store, 3, "big", waits=waits)
    assert (refused.granted, refused.until) == (False, clock.now() + 50 * SECOND)
    return refused.until


async def test_a_big_permit_that_is_waited_for_keeps_the_room_free(store, clock):
    fits_at = await a_big_permit_that_lacks_room(store, clock)
    await add(store, "a")

    small = await ask_for(store, 1, "small")
    job = await claim(store)
    clock.to(fits_at)

    assert (small.granted, small.until) == (False, fits_at)
    assert (claimed(job), job.ask_again_at) == ([], fits_at)
    assert (await ask_for(store, 3, "big", waits=True)).granted


async def test_a_big_permit_that_is_not_waited_for_keeps_nothing(store, clock):
    await a_big_permit_that_lacks_room(store, clock, waits=False)

    assert (await ask_for(store, 1, "small")).granted


async def test_the_store_says_for_which_permit_room_is_kept(store, clock):
    fits_at = await a_big_permit_that_lacks_room(store, clock)

    before = (await usage(store, "tokens")).reserved_by
    clock.to(fits_at)
    await ask_for(store, 3, "big", waits=True)

    assert (before, (await usage(store, "tokens")).reserved_by) == ("big", None)


async def test_asking_again_keeps_the_room_and_charges_nothing(store, clock):
    fits_at = await a_big_permit_that_lacks_room(store, clock)

    for _ in range(5):
        clock.advance("1s")
        assert (await ask_for(store, 3, "big", waits=True)).until == fits_at

    assert (await usage(store, "tokens")).used == 1
    assert not (await ask_for(store, 1, "small")).granted


async def test_whoever_gives_up_waiting_gives_the_room_back(store, clock):
    await a_big_permit_that_lacks_room(store, clock)
    await add(store, "a")

    await store.give_back(["big"])

    assert (await ask_for(store, 1, "small")).granted
    assert claimed(await claim(store)) == ["a"]


async def test_room_kept_for_a_permit_that_nobody_asks_for_again_is_free_after_one_window(store, clock):
    await a_big_permit_that_lacks_room(store, clock)
    reserved_at = clock.now()
    await add(store, "a")

    clock.to(reserved_at + MINUTE - 1)
    before = claimed(await claim(store))
    clock.to(reserved_at + MINUTE)

    assert (before, claimed(await claim(store))) == ([], ["a"])


async def test_a_big_permit_that_a_hold_refuses_keeps_nothing(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await hold(store, "tokens", for_="10s")
    assert not (await ask_for(store, 3, "big", waits=True)).granted

    clock.advance("10s")

    assert (await ask_for(store, 1, "small")).granted


async def test_a_big_permit_that_another_target_refuses_keeps_nothing(store, clock):
    await declare(store, "tokens", Rate(3, per="1m"))
    await declare(store, "slots", Concurrency(1))
    await ask_for(store, 1, "first")
    await store.acquire([Target("slots")], "slot", MINUTE)

    refused = await store.acquire([Target("tokens", cost=3), Target("slots")], "big", MINUTE, waits=True)

    assert not refused.granted
    assert (await ask_for(store, 1, "small")).granted
