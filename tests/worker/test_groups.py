"""Groups (feature map C, seed 002 with its three use cases)."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from paceline import App, Concurrency, Group, GroupLimits, Limit, Queue, Rate, Worker
from paceline.stores.interface import Ask
from paceline.testing import virtual_time

from .helpers import Running, add, after, fullest_window, nothing, seconds, started, takes, working


async def starts_of(queue: Queue, group: str | None) -> list[float]:
    return seconds(start for start in await queue.starts() if start.group == group)


async def order_of(queue: Queue) -> list[str | None]:
    """The groups in the order in which they started."""
    return [start.group for start in await queue.starts()]


# C1, a group on a job


async def test_c1_a_group_is_kept_with_its_job_and_the_handler_sees_it(time):
    queue = Queue("tasks", store=time.store)
    seen = []

    async def handler(job):
        seen.append(job.group)

    await queue.add("process", group="tenant-1")
    await queue.add("process", group=Group("tenant-2"))
    plain = await queue.add("process")
    async with working(Worker("tasks", handler, store=time.store)):
        await time.advance(0)

    assert seen == ["tenant-1", "tenant-2", None]
    assert [job.group for job in await queue.list()] == ["tenant-1", "tenant-2", None]
    assert plain.group is None
    assert [job.group for job in await queue.list(group="tenant-2")] == ["tenant-2"]


# C2, concurrency per group


async def test_c2_two_at_a_time_of_each_group_over_all_workers(time):
    queue = Queue("tasks", store=time.store)
    running = Running(time, "1s", by=lambda job: job.group)
    crew = [
        Worker("tasks", running, store=time.store, concurrency=10, group=GroupLimits(concurrency=2)) for _ in range(3)
    ]
    for tenant in ("a", "b", "c"):
        await add(queue, 5, group=tenant)

    async with working(*crew):
        await time.advance("10s")

    assert running.most_of == {"a": 2, "b": 2, "c": 2}
    assert running.most == 6
    for tenant in ("a", "b", "c"):
        assert await starts_of(queue, tenant) == [0, 0, 1, 1, 2]


async def test_c2_the_cap_is_the_same_for_a_worker_that_did_not_ask_for_it(time):
    queue = Queue("tasks", store=time.store)
    running = Running(time, "1s", by=lambda job: job.group)
    caps = Worker("tasks", running, store=time.store, concurrency=10, group=GroupLimits(concurrency=1))
    plain = Worker("tasks", running, store=time.store, concurrency=10)
    await add(queue, 3, group="a")

    async with working(caps, plain):
        await time.advance("10s")

    assert running.most_of == {"a": 1}
    assert await started(queue) == [0, 1, 2]


async def test_c2_a_full_group_starts_its_next_job_at_the_instant_another_worker_frees_a_slot(time):
    queue = Queue("tasks", store=time.store)
    limits = GroupLimits(concurrency=1)
    first = Worker("tasks", takes(time, "1.25s"), store=time.store, group=limits)
    second = Worker("tasks", takes(time, "0.75s"), store=time.store, group=limits)
    await add(queue, 3, group="a")

    async with working(first):
        await time.advance("1s")
        first.pause()
        async with working(second):
            await time.advance("10s")

    assert await started(queue) == [0, 1.25, 2]


# C3, rate per group


async def test_c3_one_window_per_group_for_three_workers_and_not_three(time):
    queue = Queue("api-calls", store=time.store)
    limits = GroupLimits(concurrency=5, limiter=Rate(10, per="1m"))
    crew = [Worker("api-calls", nothing, store=time.store, concurrency=10, group=limits) for _ in range(3)]
    for tenant in ("a", "b"):
        await add(queue, 25, group=tenant)

    async with working(*crew):
        await time.advance("2m")

    for tenant in ("a", "b"):
        assert await starts_of(queue, tenant) == [0] * 10 + [60] * 10 + [120] * 5


async def test_c3_the_windows_of_groups_survive_the_restart_of_the_worker(time):
    queue = Queue("api-calls", store=time.store)
    limits = GroupLimits(limiter=Rate(2, per="1m"))
    await add(queue, 4, group="a")

    async with working(Worker("api-calls", nothing, store=time.store, group=limits)):
        await time.advance("10s")
    async with working(Worker("api-calls", nothing, store=time.store, group=limits)):
        await time.advance("49s")
        assert await started(queue) == [0, 0]
        await time.advance("1s")

    assert await started(queue) == [0, 0, 60, 60]


async def test_c3_the_window_of_a_group_slides(time):
    queue = Queue("api-calls", store=time.store)
    worker = Worker("api-calls", nothing, store=time.store, group=GroupLimits(limiter=Rate(2, per="10s")))

    async with working(worker):
        for _ in range(6):
            await queue.add("call", group="a")
            await time.advance("3s")
        await time.advance("1m")

    starts = await queue.starts()
    assert seconds(starts) == [0, 3, 10, 13, 20, 23]
    assert fullest_window(starts, 10) == 2


# C6, turns


async def test_c6_groups_take_turns_whatever_their_backlog(time):
    queue = Queue("tasks", store=time.store)
    await add(queue, 200, group="large")
    await add(queue, 20, group="small")

    async with working(Worker("tasks", nothing, store=time.store)):
        await time.advance(0)

    order = await order_of(queue)
    assert order[:40] == ["large", "small"] * 20
    assert order[40:] == ["large"] * 180


@pytest.mark.parametrize("workers", [1, 3])
async def test_c6_between_two_starts_of_a_group_every_other_group_starts_exactly_once(time, workers):
    queue = Queue("tasks", store=time.store)
    names = [f"tenant-{number}" for number in range(7)]
    for name in names:
        await add(queue, 6, group=name)

    async with working(*(Worker("tasks", takes(time, "1s"), store=time.store, concurrency=2) for _ in range(workers))):
        await time.advance("1m")

    assert await order_of(queue) == names * 6


async def test_c6_a_group_that_arrives_goes_behind_those_who_wait(time):
    queue = Queue("tasks", store=time.store)
    for name in ("a", "b"):
        await add(queue, 3, group=name)

    async with working(Worker("tasks", takes(time, "1s"), store=time.store)):
        await time.advance("500ms")
        await add(queue, 2, group="late")
        await time.advance("1m")

    assert await order_of(queue) == ["a", "b", "a", "late", "b", "a", "late", "b"]


async def test_c6_priority_decides_inside_a_group_and_turns_across_groups(time):
    queue = Queue("tasks", store=time.store)
    await queue.add("x", "a-later", group="a", priority=5)
    await queue.add("x", "a-first", group="a", priority=-5)
    await queue.add("x", "b-only", group="b", priority=100)
    seen = []

    async def handler(job):
        seen.append(job.data)

    async with working(Worker("tasks", handler, store=time.store)):
        await time.advance(0)

    assert seen == ["a-first", "b-only", "a-later"]


# C7, jobs without a group


async def test_c7_jobs_without_a_group_meet_no_group_limit(time):
    queue = Queue("tasks", store=time.store)
    limits = GroupLimits(concurrency=1, limiter=Rate(1, per="1h"))
    await add(queue, 20)
    await add(queue, 2, group="a")

    async with working(Worker("tasks", takes(time, "1s"), store=time.store, concurrency=50, group=limits)):
        await time.advance("5s")

    assert await starts_of(queue, None) == [0] * 20
    assert await starts_of(queue, "a") == [0]


async def test_c7_jobs_without_a_group_take_turns_as_one_group(time):
    queue = Queue("tasks", store=time.store)
    await add(queue, 4)
    await add(queue, 4, group="a")
    await add(queue, 4, group="b")

    async with working(Worker("tasks", nothing, store=time.store)):
        await time.advance(0)

    assert await order_of(queue) == [None, "a", "b"] * 4


# C8, on top of the worker's own limits


async def test_c8_concurrency_limiter_and_both_group_limits_bind_together(time):
    queue = Queue("tasks", store=time.store)
    running = Running(time, "1s", by=lambda job: job.group)
    worker = Worker(
        "tasks",
        running,
        store=time.store,
        concurrency=5,
        limiter=Rate(8, per="2s"),
        group=GroupLimits(concurrency=2, limiter=Rate(3, per="10s")),
    )
    for name in ("a", "b", "c"):
        await add(queue, 5, group=name)

    async with working(worker):
        await time.advance("30s")

    # At 0 five slots: a b c a b. At 1 three more, then the worker's 8 per 2 s are spent. At 2 the third of c, then all
    # groups have had their 3 per 10 s. At 10 what started at 0 no longer counts, and so on.
    assert Counter(await started(queue)) == {0: 5, 1: 3, 2: 1, 10: 5, 11: 1}
    assert running.most == 5
    assert running.most_of == {"a": 2, "b": 2, "c": 1}
    for name in ("a", "b", "c"):
        assert fullest_window([start for start in await queue.starts() if start.group == name], 10) == 3


# C9, other numbers for single groups


async def test_c9_overrides_give_single_groups_other_numbers(time):
    limit = Limit("tenant", Rate(2, per="1m"), queues=["tasks"], by="group", overrides={"paying": Rate(5, per="1m")})
    queue = Queue("tasks", store=time.store, limits=[limit])
    for name in ("free", "paying"):
        await add(queue, 10, group=name)

    async with working(Worker("tasks", nothing, store=time.store, concurrency=10)):
        await time.advance("1m")

    assert await starts_of(queue, "free") == [0] * 2 + [60] * 2
    assert await starts_of(queue, "paying") == [0] * 5 + [60] * 5


async def test_c9_an_operator_changes_one_group_at_run_time_and_the_sleeping_worker_wakes(time):
    app = App(time.store)
    app.limit("tenant", Rate(1, per="1h"), queues=["tasks"], by="group")
    queue = app.queue("tasks")
    for name in ("a", "b"):
        await add(queue, 4, group=name)

    async with working(Worker("tasks", nothing, store=time.store, concurrency=10)):
        await time.advance("10s")
        await app.override("tenant", Rate(3, per="1h"), group="a", reason="paid for more")
        await time.advance("1m")

    assert await starts_of(queue, "a") == [0, 10, 10]
    assert await starts_of(queue, "b") == [0]


async def test_c9_group_limits_of_a_worker_can_be_overridden_for_one_group(time):
    app = App(time.store)
    queue = app.queue("tasks")
    running = Running(time, "1s", by=lambda job: job.group)
    for name in ("a", "b"):
        await add(queue, 6, group=name)

    async with working(Worker("tasks", running, store=time.store, concurrency=10, group=GroupLimits(concurrency=1))):
        await app.override("group:tasks", Concurrency(3), group="a")
        await time.advance("10s")

    assert running.most_of == {"a": 3, "b": 1}


# C10, capped groups cost nothing


async def claim_cost(groups: int) -> int:
    """How many functions one claim calls while this many groups are at their cap with jobs waiting."""
    async with virtual_time() as time:
        limit = Limit("tenant", Concurrency(1), queues=["tasks"], by="group")
        queue = Queue("tasks", store=time.store, limits=[limit])
        await queue.add_many([("work", None, {"group": f"g{number}"}) for number in range(groups) for _ in range(2)])
        ask = Ask(queues=("tasks",), slots=groups, worker="w", lease=3_600_000_000)
        assert len((await time.store.claim(ask)).jobs) == groups
        await queue.add("work", group="free")
        calls = 0

        def count(frame, event, arg):
            nonlocal calls
            calls += event == "call"

        one = Ask(queues=("tasks",), slots=1, worker="w", lease=3_600_000_000)
        sys.setprofile(count)
        try:
            claim = await time.store.claim(one)
        finally:
            sys.setprofile(None)
        assert [job.group for job in claim.jobs] == ["free"]
        return calls


async def test_c10_999_capped_groups_make_a_claim_no_dearer_than_nine():
    assert await claim_cost(999) == await claim_cost(9)


async def test_c10_999_capped_groups_do_not_delay_the_one_that_is_free(time):
    queue = Queue("tasks", store=time.store)
    worker = Worker("tasks", takes(time, "1h"), store=time.store, concurrency=2000, group=GroupLimits(concurrency=1))
    await queue.add_many([("work", None, {"group": f"g{number}"}) for number in range(999) for _ in range(3)])

    async with working(worker):
        await time.advance("1s")
        job = await queue.add("work", group="free")
        await time.advance(0)

        assert after((await job.refresh()).started_at) == 1
        assert (await queue.counts())["active"] == 1000


# the use cases of the seed


async def test_use_case_multi_tenant_fairness(time):
    queue = Queue("tasks", store=time.store)
    running = Running(time, "1s", by=lambda job: job.group)
    worker = Worker(
        "tasks",
        running,
        store=time.store,
        concurrency=20,
        group=GroupLimits(concurrency=3, limiter=Rate(50, per="1m")),
    )
    tenants = [f"tenant-{number}" for number in range(6)]
    for tenant in tenants:
        await add(queue, 120, group=tenant)

    async with working(worker):
        await time.advance("59s")

    assert running.most == 18
    for tenant in tenants:
        # Three per second until the fifty of the minute are used up.
        assert await starts_of(queue, tenant) == [place // 3 for place in range(50)]
    assert running.most_of == dict.fromkeys(tenants, 3)


async def test_use_case_api_rate_limits_per_provider(time):
    queue = Queue("api-calls", store=time.store)
    running = Running(time, "1s", by=lambda job: job.group)
    worker = Worker(
        "api-calls",
        running,
        store=time.store,
        concurrency=10,
        group=GroupLimits(concurrency=2, limiter=Rate(30, per="1m")),
    )
    for provider in ("github", "stripe"):
        await add(queue, 70, "fetch", group=provider)

    async with working(worker):
        await time.advance("3m")

    assert running.most_of == {"github": 2, "stripe": 2}
    for provider in ("github", "stripe"):
        # Two per second for a quarter of every minute.
        assert await starts_of(queue, provider) == [60 * (place // 30) + place % 30 // 2 for place in range(70)]
