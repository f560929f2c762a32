"""Who waits for a job's end is notified; a notification that got lost on the server delays it by a bounded time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from redis.asyncio import Redis

from paceline.errors import JobNotFound
from paceline.job import JobState, NewJob
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Outcome, Store
from paceline.stores.redis import listeners
from paceline.stores.redis.listeners import Ears

from ..servers.redis import RedisServer
from .test_wakes import commands

PREFIX = "{paceline:default}:"
SOON = 10.0
"""Real seconds that a busy machine may need for what takes two."""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "BLOCK", 1)


def ears_of(store: Store) -> Ears:
    (ears,) = store._ears.values()  # type: ignore[attr-defined]
    return ears


async def waiting_for(server: RedisServer, *ids: str) -> tuple[Store, list[asyncio.Task]]:
    """Somebody who waits for jobs that have begun, and whose name the server then forgets."""
    store = open_store(server.url)
    await store.insert([NewJob(id, "line", "work") for id in ids])
    waits = [asyncio.create_task(store.finished(id, None)) for id in ids]
    for _ in range(1000):
        if server.ask("HLEN", f"{PREFIX}waiters") == b":%d\r\n" % len(ids):
            break
        await asyncio.sleep(0.01)
    server.ask("DEL", f"{PREFIX}waiters")
    return store, waits


async def end(server: RedisServer, number: int, *, unheard: bool = False) -> None:
    other = open_store(server.url)
    claim = await other.claim(Ask(queues=("line",), slots=number, worker="other", lease=60_000_000))
    ends = [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED, result=b"1") for job in claim.jobs]
    if unheard:
        # Right before the end: a look in between gives the server the names of who waits again.
        server.ask("DEL", f"{PREFIX}waiters")
    assert await other.finish(ends) == []
    await other.close()


async def test_an_end_that_nobody_was_notified_of_is_found(new_server):
    server = new_server()
    store, waits = await waiting_for(server, "a", "b")

    await end(server, 1, unheard=True)
    found = await asyncio.wait_for(waits[0], SOON)
    assert found.state is JobState.COMPLETED and not waits[1].done()
    assert ears_of(store).insurance_wakeups == 1

    await end(server, 1)
    assert (await asyncio.wait_for(waits[1], SOON)).state is JobState.COMPLETED
    assert ears_of(store).insurance_wakeups == 1  # the look had given the server its name again
    await store.close()


async def test_an_end_that_got_lost_is_found_while_other_notifications_keep_coming(new_server):
    server = new_server()
    store, (wait,) = await waiting_for(server, "a")
    list_of_words = f"{PREFIX}wake\x1f{ears_of(store).waker}"

    async def chatter() -> None:
        async with Redis.from_url(server.url) as client:
            while True:
                await client.rpush(list_of_words, msgspec.msgpack.encode(["queue", "another"]))
                await asyncio.sleep(0.05)

    talking = asyncio.create_task(chatter())
    await end(server, 1, unheard=True)
    assert (await asyncio.wait_for(wait, SOON)).state is JobState.COMPLETED
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    await store.close()


async def test_a_job_that_is_gone_without_a_notification_is_an_error(new_server):
    server = new_server()
    store, (wait,) = await waiting_for(server, "a")

    server.ask("HDEL", f"{PREFIX}jobs", "a")
    await store.insert([NewJob("another", "line", "work")])

    with pytest.raises(JobNotFound):
        await asyncio.wait_for(wait, SOON)
    await store.close()


async def test_looking_for_lost_ends_costs_two_commands_while_nothing_happens(new_server):
    server = new_server()
    store, waits = await waiting_for(server, *(f"{number}" for number in range(20)))
    await asyncio.sleep(2.5)

    server.ask("CONFIG", "RESETSTAT")
    await asyncio.sleep(3)
    ran = commands(server)

    assert set(ran) <= {"blpop", "get"} and sum(ran.values()) <= 2 * 4, ran
    await store.close()
    await asyncio.gather(*waits, return_exceptions=True)
