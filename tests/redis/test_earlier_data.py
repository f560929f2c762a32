"""A namespace that an earlier release wrote: the numbers of a queue had two fields less, and rates no guard."""

from __future__ import annotations

import json

import msgspec
from redis import Redis

from paceline.clock import NEVER
from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Changed, Claim, Lease, Store, Target

from ..clocks import HandClock
from ..servers.redis import empty_redis
from .test_kinds_in_lua import NOW

MINUTE = 60_000_000
EARLIER_FIELDS = 4


def as_written_earlier(url: str) -> None:
    with Redis.from_url(url) as server:
        (key,) = server.keys("*:numbers")
        for queue, text in server.hgetall(key).items():
            numbers = msgspec.msgpack.decode(text, strict=False)
            assert len(numbers) > EARLIER_FIELDS
            server.hset(key, queue, msgspec.msgpack.encode(numbers[:EARLIER_FIELDS]))


async def claim(store: Store, claim_id: str) -> Claim:
    return await store.claim(Ask(queues=("line",), slots=20, worker="w", lease=60 * MINUTE, claim_id=claim_id))


async def test_what_an_earlier_release_left_is_started_when_its_limits_open():
    url, clock = empty_redis(), HandClock(NOW)
    store = open_store(url, clock=clock)
    limits = [Limit("tenant", Rate(2, per="1m"), by="group"), Limit("mail", Rate(4, per="1m"), tasks=["b"])]
    await store.set_limits(limits)
    jobs = [NewJob(f"{task}{n}", "line", task, group=f"g{n % 3}") for n in range(9) for task in "ab"]
    await store.insert(jobs)

    started = []
    for turn in ("first", "second", "third"):
        as_written_earlier(url)
        started += [job.id for job in (await claim(store, turn)).jobs]
        as_written_earlier(url)
        refused = await claim(store, f"{turn}, once more")
        assert refused.jobs == []
        clock.at = min(refused.ask_again_at, clock.at + MINUTE)

    assert sorted(started) == sorted(job.id for job in jobs)
    await store.close()


def without_guards(url: str) -> None:
    """Limits as they were written before stores chose a guard."""
    with Redis.from_url(url) as server:
        (key,) = server.keys("*:limits")
        for name, text in server.hgetall(key).items():
            limit = msgspec.msgpack.decode(text, strict=False)
            limit["parts"] = [[word, most, window - guard, 0] for word, most, window, guard, _ in limit["parts"]]
            rows = [{"guard": 0, "kind": word, "max": most, "per": per} for word, most, per, _ in limit["parts"]]
            limit["text"] = json.dumps(rows, separators=(",", ":"))
            server.hset(key, name, msgspec.msgpack.encode(limit))


async def test_a_limit_without_a_guard_gets_one_when_it_is_declared_again(store):
    limit = Limit.for_code("api", Rate(2, per="1s"))
    await store.set_limits([limit])
    without_guards(store.address)
    before = await store.acquire([Target("api")], "a", MINUTE)
    read = await store.limits()

    changed = await store.set_limits([limit])

    assert (read, changed) == ([limit], [])
    after = await store.acquire([Target("api")], "b", MINUTE)
    assert (before.guard, after.guard) == (NEVER, 20_000)
    refused = await store.acquire([Target("api")], "c", MINUTE)
    assert refused.until == before.now + 1_020_000


async def test_a_limit_without_a_guard_that_gets_other_numbers_has_changed(store):
    await store.set_limits([Limit.for_code("api", Rate(2, per="1s"))])
    without_guards(store.address)

    changed = await store.set_limits([Limit.for_code("api", Rate(2, per="1s", guard=0))])

    assert changed == [
        Changed(Limit.for_code("api", Rate(2, per="1s")), Limit.for_code("api", Rate(2, per="1s", guard=0)))
    ]


async def test_a_run_that_an_earlier_release_wrote_anew_leaves_nothing_open():
    """It keeps the fields that it knows, and the gate is not among them."""
    url, clock = empty_redis(), HandClock(NOW)
    store = open_store(url, clock=clock)
    await store.set_limits([Limit("mail", Rate(1, per="1s", guard="20ms"))])
    await store.insert([NewJob("a", "line", "a"), NewJob("b", "line", "a")])
    (job,) = (await claim(store, "first")).jobs
    await store.decide_again([Lease(job.id, job.fence)])
    with Redis.from_url(url) as server:
        (key,) = server.keys("*:runs")
        run = msgspec.msgpack.decode(server.hget(key, "a"), strict=False)
        server.hset(key, "a", msgspec.msgpack.encode(run[:15]))

    clock.at += 60 * MINUTE
    again = await claim(store, "second")

    assert [each.id for each in again.jobs] == ["a"]
    assert (await store.usage("mail", None)).open == 0
    await store.close()
