"""A namespace that an earlier release wrote: the numbers of a queue had two fields less."""

from __future__ import annotations

import msgspec
from redis import Redis

from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Claim, Store

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
