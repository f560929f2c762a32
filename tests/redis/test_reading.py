"""Looking writes nothing, works on a replica, and costs the same however many groups there are."""

from __future__ import annotations

import asyncio
import re
import time

import msgspec
import pytest
from redis import Redis

from paceline.clock import NEVER
from paceline.errors import StoreUnavailable
from paceline.job import NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Filter, Finish, Outcome, Override, Store

from ..clocks import HandClock
from ..servers.redis import RedisServer, empty_redis
from .test_kinds_in_lua import NOW

LIMITS = [Limit("all", Rate(100, per="1s")), Limit("tenant", Rate(2, per="1m") & Concurrency(5), by="group")]


async def look(store: Store) -> list[object]:
    """All that can be read, but for instants that go on while one looks."""
    usages = [await store.usage("all", None), await store.usage("tenant", "g1"), await store.usage("tenant", None)]
    return [
        await store.counts("line"),
        await store.queues(),
        [job.id for job in await store.get(["a", "b", "nobody"])],
        [job.id for job in await store.find(Filter(queue="line"))],
        await store.limits(),
        await store.overrides(),
        [(usage.used, usage.allowed, usage.waiting) for usage in usages],
        [(standing.ahead, standing.groups) for standing in [await store.standing("b")]],
        await store.workers(),
        len(await store.starts("line", None)),
    ]


async def filled(url: str) -> Store:
    store = open_store(url)
    await store.set_limits(LIMITS)
    await store.insert([NewJob(name, "line", "work", group=f"g{place}") for place, name in enumerate("abcd")])
    await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=60_000_000))
    return store


async def test_looking_writes_nothing():
    url = empty_redis()
    store = await filled(url)
    with Redis.from_url(url) as server:
        before = server.info("persistence")["rdb_changes_since_last_save"]
        seen = await look(store)
        again = await look(store)
        after = server.info("persistence")["rdb_changes_since_last_save"]

    assert (after, again) == (before, seen)
    await store.close()


async def test_a_replica_can_be_looked_at(new_server):
    primary = new_server()
    store = await filled(primary.url)
    replica = new_server("--replicaof", f"127.0.0.1 {primary.port}")
    await caught_up(primary, replica)
    reader = open_store(replica.url)

    assert await look(reader) == await look(store)
    with pytest.raises(StoreUnavailable, match="read-only replica"):
        await reader.insert([NewJob("e", "line", "work")])
    with pytest.raises(StoreUnavailable, match="read-only replica"):
        await reader.claim(Ask(queues=("line",), slots=1, worker="r", lease=60_000_000))
    assert (await reader.counts("line"))["waiting"] == 3
    await reader.close()
    await store.close()


async def caught_up(primary: RedisServer, replica: RedisServer) -> None:
    deadline = time.monotonic() + 10
    with Redis.from_url(primary.url) as one, Redis.from_url(replica.url) as other:
        while other.info("replication")["master_link_status"] != "up" or one.dbsize() != other.dbsize():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_an_override_that_ended_is_seen_as_ended_by_those_who_only_look():
    url, clock = empty_redis(), HandClock(NOW)
    store = open_store(url, clock=clock)
    await store.set_limits(LIMITS)
    await store.override(Override(limit="all", kind=Rate(7, per="1s")), 5_000_000)

    during = (await store.usage("all", None)).allowed
    clock.at += 5_000_000
    after, left = (await store.usage("all", None)).allowed, await store.overrides()

    assert (during, after, left) == (7, 100, [])
    await store.close()


async def commands_to_look(server: RedisServer, groups: int) -> int:
    store = open_store(server.url, namespace=f"groups{groups}")
    await store.insert([NewJob(f"job {n}", "line", "work", group=f"g{n}") for n in range(groups)])
    await store.queues()
    server.ask("CONFIG", "RESETSTAT")
    (seen,) = await store.queues()
    assert "hvals" not in server.ask("INFO", "commandstats").decode()
    standing = await store.standing("job 1")
    stats = server.ask("INFO", "commandstats").decode()
    assert (seen.groups, standing.groups) == (groups, groups)
    assert "cmdstat_hvals:calls=1," in stats  # the workers
    await store.close()
    return sum(int(found) for found in re.findall(r"cmdstat_\S+:calls=(\d+)", stats))


async def test_queues_and_their_groups_are_counted_without_reading_the_groups(new_server):
    server = new_server()

    few, many = [await commands_to_look(server, groups) for groups in (10, 1_000)]

    assert many == few


async def test_groups_are_counted_right_whatever_happens_to_their_jobs():
    url, clock = empty_redis(), HandClock(NOW)
    store = open_store(url, clock=clock)
    jobs = [NewJob(f"{name}{n}", "line", "work", group=name) for name in "abc" for n in range(2)]
    await store.insert([*jobs, NewJob("later", "line", "work", group="d", delay=1_000_000)])

    async def groups() -> int:
        (seen,) = await store.queues()
        return seen.groups

    assert await groups() == 3
    started = await store.claim(Ask(queues=("line",), slots=4, worker="w", lease=10_000_000))
    assert await groups() == 2
    await store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.RETURNED) for job in started.jobs])
    assert await groups() == 3
    await store.move(["a0", "a1"], "remove")
    clock.at += 1_000_000
    await store.claim(Ask(queues=("line",), slots=0, worker="w", lease=10_000_000))
    assert await groups() == 3
    await store.drain("line")
    assert await store.queues() == [] or await groups() == 0
    assert (await store.claim(Ask(queues=("line",), slots=9, worker="w", lease=1))).ask_again_at <= NEVER
    await store.close()


async def test_groups_that_an_earlier_release_filed_are_counted_too():
    url = empty_redis()
    store = open_store(url)
    await store.insert([NewJob(f"job {n}", "line", "work", group=f"g{n}") for n in range(5)])
    with Redis.from_url(url) as server:
        key = "{paceline:default}:numbers"
        numbers = msgspec.msgpack.decode(server.hget(key, "line"), strict=False)
        server.hset(key, "line", msgspec.msgpack.encode(numbers[:6]))

    (seen,) = await store.queues()
    await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=60_000_000))
    await store.prune()
    (later,) = await store.queues()

    assert (seen.groups, later.groups) == (5, 4)
    await store.close()
