"""A server that is restarted while somebody waits for a permit: the wait goes on, and ends when a slot is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from paceline import Concurrency, Limiter, StoreUnavailable, open_store

from ..servers.postgres import Server
from ..servers.redis import RedisServer, free_port

SOON = 15.0


@dataclass
class Restarted:
    """A server that keeps what it was told, and can be stopped and started."""

    url: str
    stop: Callable[[], None]
    start: Callable[[], None]


@pytest.fixture(params=["postgres", "redis"])
def restarted(request: pytest.FixtureRequest) -> Iterator[Restarted]:
    if request.param == "postgres":
        with Server({"synchronous_commit": "on"}) as server:
            yield Restarted(server.url(), server.stop, server.start)
        return
    redis = RedisServer("--appendonly", "yes", "--appendfsync", "always", port=free_port())
    redis.start()
    yield Restarted(redis.url, redis.stop, redis.start)
    redis.remove()


async def test_who_waits_for_a_permit_waits_through_a_restart(restarted):
    store = open_store(restarted.url)
    limiter, elsewhere = (Limiter("db", Concurrency(1), store=store) for _ in range(2))
    taken = await limiter.try_acquire()
    assert taken is not None
    assert await elsewhere.try_acquire() is None

    async def acquires() -> None:
        async with limiter.acquire():
            pass

    begun_before = asyncio.create_task(acquires())
    await asyncio.sleep(0.2)
    await asyncio.to_thread(restarted.stop)
    begun_meanwhile = asyncio.create_task(acquires())
    with pytest.raises(StoreUnavailable):
        async with elsewhere.acquire(timeout="500ms"):
            raise AssertionError("there was no permit")
    with pytest.raises(TimeoutError):
        async with limiter.acquire(timeout="50ms"):  # behind the two
            raise AssertionError("there was no permit")
    assert not begun_before.done()
    assert not begun_meanwhile.done()

    await asyncio.to_thread(restarted.start)
    await taken.release()
    await asyncio.wait_for(asyncio.gather(begun_before, begun_meanwhile), SOON)
    await store.close()
