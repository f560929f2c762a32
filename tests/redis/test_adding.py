"""Adds that come at the same moment go to the server together, and each is still a call of its own."""

from __future__ import annotations

import asyncio
import re

import pytest

from paceline.errors import GroupFull, NeverFits, StoreUnavailable
from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores import open_store
from paceline.stores.adds import MOST

from ..servers.redis import RedisServer


def job(name: str, group: str | None = None, size: int | None = None, cost: int = 1) -> NewJob:
    return NewJob(name, "line", "work", group=group, group_max_size=size, cost=cost)


async def test_many_callers_share_a_few_steps(new_server):
    server = new_server()
    store = open_store(server.url)
    await store.open()
    server.ask("CONFIG", "RESETSTAT")

    answers = await asyncio.gather(*(store.insert([job(f"{n}")]) for n in range(300)))

    stats = server.ask("INFO", "commandstats").decode()
    assert int(re.findall(r"cmdstat_fcall:calls=(\d+)", stats)[0]) <= 2 + 300 // MOST
    assert [answer[0].job.id for answer in answers] == [f"{n}" for n in range(300)]
    orders = [answer[0].job.order for answer in answers]
    assert orders == sorted(orders)
    assert (await store.counts("line"))["waiting"] == 300
    await store.close()


async def test_every_caller_gets_its_own_refusal_and_the_others_their_jobs(store):
    await store.set_limits([Limit("small", Rate(3, per="1h"))])
    calls = [
        [job("first")],
        [job("a1", "a", 2), job("a2", "a", 2)],
        [job("free before the refusal"), job("a3", "a", 2)],
        [job("big", cost=4)],
        [job("last"), job("first")],
    ]

    answers = await asyncio.gather(*map(store.insert, calls), return_exceptions=True)

    assert [type(answer) for answer in answers] == [list, list, GroupFull, NeverFits, list]
    assert [(each.job.id, each.existed) for each in answers[4]] == [("last", False), ("first", True)]
    found = {each.id for each in await store.get([each.id for call in calls for each in call])}
    assert found == {"first", "a1", "a2", "last"}


async def test_a_caller_that_gives_up_takes_nobody_along(store):
    calls = [asyncio.create_task(store.insert([job(f"{n}")])) for n in range(5)]
    await asyncio.sleep(0)
    calls[3].cancel()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(answer) for answer in answers] == [list, list, list, asyncio.CancelledError, list]
    assert {"0", "1", "2", "4"} <= {each.id for each in await store.get([f"{n}" for n in range(5)])}


async def test_all_callers_hear_that_the_server_is_gone(new_server):
    server = new_server()
    store = open_store(server.url)
    await store.open()
    server.kill()

    answers = await asyncio.gather(*(store.insert([job(f"{n}")]) for n in range(5)), return_exceptions=True)

    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [True] * 5
    server.start()
    assert len(await store.insert([job("after")])) == 1
    await store.close()


async def test_a_call_in_a_crowd_keeps_its_order_with_those_before_it(store):
    for turn in range(20):
        await asyncio.gather(*(store.insert([job(f"{turn}.{n}")]) for n in range(7)))
    with pytest.raises(GroupFull):
        await store.insert([job("x", "g", 1), job("y", "g", 1)])

    assert [each.id for each in await store.get(["x", "y"])] == []
    assert (await store.counts("line"))["waiting"] == 140


async def time_of_adding(server: RedisServer, limits: int) -> int:
    """Microseconds that the server spends in one call that adds jobs of so many tasks, each with a limit of its own."""
    store = open_store(server.url, namespace=f"limits{limits}")
    tasks = [f"task {number % limits}" for number in range(1_500)]
    await store.set_limits([Limit(f"of {task}", Rate(5, per="1h"), tasks=[task]) for task in set(tasks)])
    server.ask("CONFIG", "RESETSTAT")
    await store.insert([NewJob(f"{number}", "line", task) for number, task in enumerate(tasks)])
    stats = server.ask("INFO", "commandstats").decode()
    await store.close()
    return sum(int(found) for found in re.findall(r"cmdstat_fcall:calls=\d+,usec=(\d+)", stats))


async def test_what_an_add_costs_hardly_depends_on_how_many_limits_there_are(new_server):
    server = new_server()
    assert await time_of_adding(server, 1_000) < 8 * await time_of_adding(server, 10)
