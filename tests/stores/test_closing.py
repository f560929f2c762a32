"""A store that was closed has let go of everything, and opens again with its next use; other handles go on."""

from __future__ import annotations

import asyncio

import pytest

from paceline.errors import StoreUnavailable
from paceline.limits import Concurrency

from .builders import add, claim, claimed, declare, finish, read, soon, start


async def test_a_closed_store_opens_again_with_its_next_use(store):
    await declare(store, "slots", Concurrency(2))
    await add(store, "a", "b", "c")
    (first,) = await start(store)

    await store.close()
    assert (await store.counts("line"))["waiting"] == 2
    await store.close()
    assert (await read(store, "a")).id == "a"
    await store.close()
    await store.open()
    await add(store, "d")
    assert claimed(await claim(store, 3)) == ["b"]
    await finish(store, first)
    assert claimed(await claim(store, 3)) == ["c"]


async def test_a_store_may_be_closed_twice_and_before_its_first_use(store, opener):
    await store.close()
    await store.close()
    other = opener("elsewhere")
    await other.close()

    await add(other, "a")
    assert claimed(await claim(other)) == ["a"]
    await other.close()


async def test_other_handles_go_on_when_one_is_closed(store, opener):
    other = opener("elsewhere")
    await other.open()
    await add(store, "a")
    await add(other, "b")

    await other.close()

    assert claimed(await claim(store)) == ["a"]
    assert claimed(await claim(other)) == ["b"]
    await other.close()


async def test_who_waits_for_a_result_when_the_store_closes_gets_an_error(store):
    await add(store, "a")
    waits = asyncio.create_task(store.finished("a", None))
    await asyncio.sleep(0.1)

    await store.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await soon(waits)
    assert claimed(await claim(store)) == ["a"]


async def test_sleepers_look_again_when_the_store_closes(store):
    listener = store.listen(["line"])
    listener.event.clear()

    await store.close()

    await soon(listener.event.wait())
    listener.close()
