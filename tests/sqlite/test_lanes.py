"""Lanes and meters of a file: numbers are given once, and what one process remembers another may have changed."""

from __future__ import annotations

import pytest

from paceline import Delay, Limit, Queue, Rate
from paceline.stores.interface import Filter
from paceline.stores.steps.lanes import BLOCKED, READY

from .helpers import start


async def start_all(store) -> list:
    """Everything that may start now, in as many claims as it takes."""
    jobs: list = []
    while found := await start(store, 50):
        jobs += found
    return jobs


@pytest.mark.parametrize("strangers", [1, 2, 3, 4, 5])
async def test_lanes_that_join_others_take_no_number_that_is_given_again(store, opener, strangers):
    """Twenty groups have lanes in both classes, a few only in the one that goes: their new lanes need numbers."""
    queue = Queue("line", store=store)
    await store.set_limits([Limit("apart", Rate(1000, per="1m"), tasks=["mail"])])
    groups = [f"g{number:02}" for number in range(20)]
    few = [f"z{number}" for number in range(strangers)]
    await queue.add_many([("sms", None, {"group": group}) for group in groups])
    await queue.add_many([("mail", None, {"group": group}) for group in groups + few])

    await store.drop_limit("apart")
    await queue.add_many([("sms", None, {"group": f"new {number}"}) for number in range(40)])
    expected = (await queue.counts())["waiting"]
    await store.close()

    assert expected == 80 + strangers
    assert len(await start_all(opener())) == expected
    assert (await queue.counts())["waiting"] == 0


async def test_numbers_of_lanes_and_queues_are_never_above_those_that_were_given(store, program):
    queue = Queue("line", store=store)
    groups = [f"g{number:02}" for number in range(10)]
    for turn in range(3):
        await store.set_limits([Limit("apart", Rate(1000, per="1m"), tasks=["mail"])])
        await queue.add_many([(task, None, {"group": group}) for task in ("sms", "mail") for group in groups])
        await queue.add("mail", group=f"only mail {turn}")
        await store.drop_limit("apart")
        await queue.pause(task="sms")
        await queue.add("sms", group=f"only sms {turn}")
        await queue.resume(task="sms")

        db = program()
        (given,) = db.execute("SELECT ids FROM paceline_file").fetchone()
        for table in ("queue", "class", "group", "lane", "meter"):
            (highest,) = db.execute(f"SELECT coalesce(max(id), 0) FROM paceline_{table}").fetchone()
            assert highest <= given, f"paceline_{table} has {highest}, and the next number is {given + 1}"
        db.close()


async def test_a_limit_that_was_only_looked_at_can_be_dropped_after_another_process_wrote(store, opener):
    other = opener()
    await store.set_limits([Limit("api", Rate(5, per="1m"))])
    await Queue("line", store=store).add("work")
    await store.usage("api", None)
    await store.standing((await store.find(Filter(queue="line")))[0].id)
    await Queue("line", store=store).add("work", cost=2)
    await Queue("line", store=other).add("work")

    assert await store.drop_limit("api") is True
    assert len(await start_all(other)) == 3


async def test_a_new_head_opens_a_blocked_lane_of_which_no_job_was_read(store, opener, program):
    await store.set_limits([Limit("tenant", Delay("1h"), by="group")])
    await Queue("line", store=store).add_many([("t", None, {"group": "ada"})] * 2)
    assert len(await start(store, 2)) == 1
    lanes = program()
    assert lanes.execute("SELECT state FROM paceline_lane").fetchall() == [(BLOCKED.value,)]

    await Queue("line", store=opener()).add("t", group="ada")
    assert lanes.execute("SELECT state FROM paceline_lane").fetchall() == [(BLOCKED.value,)]
    await Queue("line", store=opener()).add("t", group="ada", priority=-1)

    assert lanes.execute("SELECT state FROM paceline_lane").fetchall() == [(READY.value,)]
