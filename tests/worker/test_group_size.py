"""The size of a group: checked in the insert itself, single and bulk (feature map C4, C5; a use case of seed 002)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from paceline import Group, GroupFull, Queue, Worker

from .helpers import add, states, takes, working


async def test_c4_a_full_group_refuses_a_job_and_the_error_says_group_size_and_maximum(time):
    queue = Queue("tasks", store=time.store)
    await add(queue, 3, group=Group("user-1", max_size=3))

    with pytest.raises(GroupFull) as full:
        await queue.add("render", group=Group("user-1", max_size=3))

    assert (full.value.group, full.value.size, full.value.max_size) == ("user-1", 3, 3)
    assert "user-1" in str(full.value)
    assert (await queue.counts())["waiting"] == 3


async def test_c4_of_fifty_concurrent_adds_exactly_ten_get_in(time):
    queue = Queue("tasks", store=time.store)
    adds = [queue.add("render", place, group=Group("user-1", max_size=10)) for place in range(50)]

    done = await asyncio.gather(*adds, return_exceptions=True)

    assert Counter(type(each).__name__ for each in done) == {"Job": 10, "GroupFull": 40}
    assert (await queue.counts())["waiting"] == 10


async def test_c4_delayed_jobs_count_and_running_ones_do_not(time):
    queue = Queue("tasks", store=time.store)
    group = Group("user-1", max_size=2)
    await queue.add("render", group=group)
    async with working(Worker("tasks", takes(time, "1h"), store=time.store)):
        await time.advance("1s")
        # One runs: there is room for two that have not started.
        await queue.add("render", group=group)
        await queue.add("render", group=group, delay="2h")

        with pytest.raises(GroupFull) as full:
            await queue.add("render", group=group)
    assert full.value.size == 2


async def test_c4_a_job_that_comes_back_is_never_refused(time):
    queue = Queue("tasks", store=time.store)
    group = Group("user-1", max_size=1)
    first = await queue.add("render", group=group, attempts=2, retry_delay="1m")

    async def fails(job):
        await time.sleep("1s")
        raise OSError("disk full")

    async with working(Worker("tasks", fails, store=time.store)):
        await time.advance("500ms")
        second = await queue.add("render", group=group, delay="1h")
        await time.advance("1s")

        # Now two of the group have not started, although one is the maximum for those who add.
        assert await states([first, second]) == ["delayed", "delayed"]
        with pytest.raises(GroupFull):
            await queue.add("render", group=group)


async def test_c5_a_bulk_add_counts_its_own_jobs_and_is_all_or_nothing(time):
    queue = Queue("tasks", store=time.store)
    group = Group("user-1", max_size=5)
    await add(queue, 3, group=group)

    with pytest.raises(GroupFull) as full:
        await add(queue, 3, group=group)
    assert (full.value.size, full.value.max_size) == (5, 5)
    assert (await queue.counts())["waiting"] == 3

    await add(queue, 2, group=group)
    assert (await queue.counts())["waiting"] == 5


async def test_c5_a_bulk_add_counts_each_group_for_itself(time):
    queue = Queue("tasks", store=time.store)
    jobs = [("render", None, {"group": Group(name, max_size=2)}) for name in ("a", "b", "a", "b")]

    await queue.add_many(jobs)

    with pytest.raises(GroupFull, match="'a'"):
        await queue.add_many([("render", None), *jobs])
    assert (await queue.counts())["waiting"] == 4


async def test_use_case_per_user_job_limits(time):
    queue = Queue("tasks", store=time.store)
    for user in (1, 2):
        for _ in range(10):
            await queue.add("render", {"video": 1}, group=Group(f"user-{user}", max_size=10))
    with pytest.raises(GroupFull) as full:
        await queue.add("render", {"video": 2}, group=Group("user-1", max_size=10))
    assert (full.value.group, full.value.size, full.value.max_size) == ("user-1", 10, 10)

    async with working(Worker("tasks", takes(time, "1h"), store=time.store, concurrency=1)):
        await time.advance("1s")
        # One of user 1 runs, so one more may wait.
        await queue.add("render", {"video": 2}, group=Group("user-1", max_size=10))
        with pytest.raises(GroupFull):
            await queue.add("render", {"video": 3}, group=Group("user-1", max_size=10))
