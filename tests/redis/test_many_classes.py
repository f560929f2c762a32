"""A thousand tasks with a limit each are a thousand classes: what a claim asks the server depends on what it starts."""

from __future__ import annotations

import re

from paceline.job import NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Claim, Store

from ..servers.redis import RedisServer

SLOTS = 5


async def store_with(server: RedisServer, classes: int, kind: Rate | Concurrency) -> Store:
    """Three jobs, one of a group, for each of so many tasks, each with a limit of its own."""
    store = open_store(server.url, namespace=f"classes{classes}")
    tasks = [f"task {number}" for number in range(classes)]
    await store.set_limits([Limit(f"of {task}", kind, tasks=[task]) for task in tasks])
    jobs = [NewJob(f"{task} {turn}", "line", task, group="g" if turn else None) for turn in range(3) for task in tasks]
    await store.insert(jobs)
    return store


async def claim(store: Store, slots: int = SLOTS) -> Claim:
    return await store.claim(Ask(queues=("line",), slots=slots, worker="worker", lease=60_000_000))


async def commands_of_a_claim(server: RedisServer, classes: int, kind: Rate | Concurrency, before: int) -> int:
    store = await store_with(server, classes, kind)
    await claim(store, before)
    await claim(store)
    server.ask("CONFIG", "RESETSTAT")
    await claim(store)
    stats = server.ask("INFO", "commandstats").decode()
    await store.close()
    return sum(int(found) for found in re.findall(r"cmdstat_\S+:calls=(\d+)", stats))


async def test_a_claim_sends_as_many_commands_with_400_classes_as_with_40(new_server):
    server, kind = new_server(), Rate(5, per="1h")

    few, many = [await commands_of_a_claim(server, classes, kind, SLOTS) for classes in (40, 400)]

    assert many <= few + SLOTS


async def test_classes_that_are_full_cost_a_claim_no_more_than_reading_their_limits(new_server):
    server, kind = new_server(), Concurrency(1)

    few, many = [await commands_of_a_claim(server, classes, kind, classes) for classes in (40, 400)]

    assert many - few <= 2 * (400 - 40)
