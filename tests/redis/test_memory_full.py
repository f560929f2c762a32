"""A server whose memory is full: nothing is added, and everything that makes room again goes through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from paceline import App, Concurrency, GroupLimits, Job, Queue, Rate, StoreError, Worker
from paceline.stores import open_store
from paceline.stores.interface import Store

from ..servers.redis import RedisServer

SOME = 200
"""Jobs that wait when the memory is full."""


@pytest.fixture
def server(new_server: Callable[..., RedisServer]) -> RedisServer:
    server: RedisServer = new_server("--maxmemory-policy", "noeviction")
    return server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    store = open_store(server.url)
    await Queue("line", store=store).add_many([("work", number, {"keep": 0}) for number in range(SOME)])
    yield store
    await store.close()


def fill(server: RedisServer) -> None:
    """From now on the server has no room, whatever is freed."""
    assert server.ask("CONFIG", "SET", "maxmemory", "1").startswith(b"+OK")


async def everything(job: Job[None]) -> str:
    await job.progress(50, "half")
    await job.log("a line")
    return "done"


async def test_nothing_is_added(server, store):
    fill(server)
    with pytest.raises(StoreError, match=r"memory is full: nothing was added.*or raise maxmemory"):
        await Queue("line", store=store).add("work")


async def test_a_worker_that_comes_then_does_all_that_waits(server, store):
    fill(server)
    worker = Worker("line", everything, store=store, concurrency=10, group=GroupLimits(concurrency=2))

    async with asyncio.timeout(20):
        await worker.run(until_empty=True)

    counts = await Queue("line", store=store).counts()
    assert {state: number for state, number in counts.items() if number} == {}


async def test_a_program_that_comes_then_declares_its_limits(server, store):
    fill(server)
    other = open_store(server.url)
    app = App(other)
    app.limit("slow", Rate(1000, per="1s") & Concurrency(3), queues=["line"])

    async with asyncio.timeout(20):
        await Worker("line", everything, store=other, concurrency=10, declarations=app._declarations).run(
            until_empty=True
        )

    assert (await app.limit_state("slow")).kind == Rate(1000, per="1s") & Concurrency(3)
    await other.close()


async def test_a_worker_that_ran_before_goes_on_and_is_heard(server, store):
    queue = Queue("line", store=store)
    worker = Worker("line", everything, store=store, concurrency=10)
    async with worker:
        worker.pause()
        job = await queue.add("work", keep="1h")
        fill(server)
        worker.resume()
        assert await job.result(timeout=20) == "done"
    await job.refresh()
    assert (list(job.logs), job.error) == (["a line"], None)


async def test_permits_are_given_and_given_back(server, store):
    limiter = App(store).limiter("calls", Concurrency(1))
    await limiter.can_proceed()
    fill(server)
    for _ in range(3):
        async with limiter.acquire(timeout=5):
            assert await limiter.try_acquire() is None


async def test_an_operator_may_change_numbers(server, store):
    app = App(store)
    app.limit("slow", Rate(1, per="1h"), queues=["line"])
    await app.limit_state("slow")
    fill(server)
    await app.override("slow", Rate(1000, per="1s"))
    assert (await app.limit_state("slow")).kind == Rate(1000, per="1s")


async def test_a_server_that_has_no_room_for_our_steps_is_a_clear_error(server, store):
    server.ask("FUNCTION", "FLUSH")
    fill(server)
    other = open_store(server.url)
    with pytest.raises(StoreError, match="no room for the functions of this version"):
        await other.open()
    await other.close()
