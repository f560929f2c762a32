"""A queue: adding, looking, and what is done to it as a whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline import (
    Concurrency,
    ConfigError,
    Group,
    GroupFull,
    Job,
    JobNotFound,
    Limit,
    MoveNotAllowed,
    NeverFits,
    NotSerializable,
    Queue,
    QueueClosed,
    Rate,
    Start,
    Worker,
)
from paceline.testing import VirtualTime

from .conftest import Timeline

STATES = {"waiting", "delayed", "active", "completed", "failed", "cancelled", "waiting-children"}


@pytest.fixture
def queue(paceline_time: VirtualTime) -> Queue:
    return Queue("mail", store=paceline_time.store)


async def noop(job: Job[Any]) -> None:
    if job.task == "fail":
        raise ValueError("boom")


def worker(time: VirtualTime, handler: Any = noop, concurrency: int = 100) -> Worker:
    return Worker("mail", handler, store=time.store, concurrency=concurrency)


async def run(time: VirtualTime, duration: str = "0s", **options: Any) -> list[str]:
    """Let a worker start what it may; the ids in the order of their starts."""
    before = len(time.starts())
    async with worker(time, **options):
        await time.advance(duration)
    return [start.job_id for start in time.starts()[before:]]


async def sizes(queue: Queue) -> dict[str, int]:
    return {state: number for state, number in (await queue.counts()).items() if number}


# adding


async def test_add_gives_a_waiting_job(queue: Queue) -> None:
    job = await queue.add("send", {"to": "a@example.org"})
    assert (job.queue, job.task, job.data, job.state) == ("mail", "send", {"to": "a@example.org"}, "waiting")
    assert (await queue.add("send")).data is None
    assert await sizes(queue) == {"waiting": 2}


async def test_jobs_start_in_the_order_of_priority_and_then_of_adding(queue: Queue, paceline_time: VirtualTime) -> None:
    added = {n: await queue.add("t", priority=n) for n in (0, 5, -3, 2)}
    second = await queue.add("t", priority=0)
    order = await run(paceline_time, concurrency=1)
    assert order == [added[n].id for n in (-3, 0)] + [second.id] + [added[n].id for n in (2, 5)]


async def test_lifo_jobs_go_before_the_others_of_their_priority(queue: Queue, paceline_time: VirtualTime) -> None:
    fifo = [await queue.add("t") for _ in range(2)]
    lifo = [await queue.add("t", lifo=True) for _ in range(2)]
    urgent = await queue.add("t", priority=-1)
    assert await run(paceline_time, concurrency=1) == [job.id for job in (urgent, lifo[1], lifo[0], *fifo)]


async def test_a_queue_without_groups_is_plain_priority_and_fifo_also_when_tasks_meet_different_limits(
    paceline_time: VirtualTime,
) -> None:
    queue = Queue("mail", store=paceline_time.store, limits=[Limit("b-only", Concurrency(50), tasks=["b"])])
    jobs = [await queue.add(task) for task in ("a", "b", "a", "b")]
    urgent = await queue.add("b", priority=-1)
    assert await run(paceline_time, concurrency=1) == [job.id for job in (urgent, *jobs)]


async def test_delay_and_at_make_a_job_wait_until_it_is_due(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    delayed = await queue.add("t", delay="10s")
    dated = await queue.add("t", at=timeline.began + timedelta(seconds=20))
    past = await queue.add("t", at=timeline.began - timedelta(days=1))
    now = await queue.add("t", delay=0)
    assert [job.state for job in (delayed, dated, past, now)] == ["delayed", "delayed", "waiting", "waiting"]
    assert [timeline.at(job.due_at) for job in (delayed, dated, past, now)] == [10, 20, 0, 0]
    await run(paceline_time, "1m")
    assert timeline.starts() == [0, 0, 10, 20]


async def test_a_delayed_job_that_is_due_counts_as_waiting_before_anybody_claims(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    job = await queue.add("t", delay="10s")
    await paceline_time.advance("10s")
    assert (await job.refresh()).state == "waiting"
    assert await sizes(queue) == {"waiting": 1}
    assert [each.id for each in await queue.list("waiting")] == [job.id]


# many


async def test_add_many_adds_in_order_with_options_of_their_own(queue: Queue) -> None:
    jobs = await queue.add_many((("t", n, {"priority": n}) if n else ("t", n)) for n in range(3))
    assert [(job.data, job.priority) for job in jobs] == [(0, 0), (1, 1), (2, 2)]
    assert [job.id for job in await queue.list()] == [job.id for job in jobs]
    assert await queue.add_many([]) == []


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (("t", object()), NotSerializable),
        (("t", None, {"attempts": 0}), ConfigError),
        (("t", None, {"colour": "red"}), ConfigError),
        (("t", None, {"cost": 11}), NeverFits),
        (("t", None, {"group": Group("full", max_size=1)}), GroupFull),
        (("", None), ConfigError),
        (("t",), ConfigError),
        ("tx", ConfigError),
        (("t", None, {}, {}), ConfigError),
        (None, ConfigError),
    ],
    ids=["data", "option", "unknown option", "cost", "group", "task", "one part", "text", "four parts", "nothing"],
)
async def test_add_many_is_all_or_nothing(paceline_time: VirtualTime, last: Any, error: type[Exception]) -> None:
    queue = Queue("mail", store=paceline_time.store, limits=[Rate(10, per="1m")])
    await queue.add("t", group="full")
    with pytest.raises(error):
        await queue.add_many([("t", 1), ("t", 2), last])
    assert await sizes(queue) == {"waiting": 1}


# the size of groups


async def test_a_full_group_refuses_with_group_size_and_maximum_c4(queue: Queue) -> None:
    group = Group("tenant-1", max_size=3)
    for delay in (None, "1h", None):
        await queue.add("t", group=group, delay=delay)
    with pytest.raises(GroupFull) as caught:
        await queue.add("t", group=group)
    assert (caught.value.group, caught.value.size, caught.value.max_size) == ("tenant-1", 3, 3)
    await queue.add("t", group="tenant-1")
    await queue.add("t", group=Group("tenant-2", max_size=1))
    assert sum((await queue.counts()).values()) == 5


async def test_a_batch_counts_itself_c5(queue: Queue) -> None:
    group = Group("tenant-1", max_size=3)
    await queue.add("t", group=group)
    with pytest.raises(GroupFull):
        await queue.add_many([("t", n, {"group": group}) for n in range(3)])
    assert await sizes(queue) == {"waiting": 1}
    assert len(await queue.add_many([("t", n, {"group": group}) for n in range(2)])) == 2


async def test_started_jobs_do_not_count_and_a_job_that_comes_back_is_never_refused(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    group = Group("tenant-1", max_size=1)

    async def handler(job: Job[Any]) -> None:
        if job.attempts_made == 1:
            await paceline_time.sleep("10s")
            raise ValueError("boom")

    first = await queue.add("t", group=group, attempts=2, retry_delay="1h")
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
        await queue.add("t", group=group, delay="1h")
        with pytest.raises(GroupFull):
            await queue.add("t", group=group)
        await paceline_time.advance("10s")
        assert ((await first.refresh()).state, (await sizes(queue))["delayed"]) == ("delayed", 2)
        with pytest.raises(GroupFull) as caught:
            await queue.add("t", group=group)
        assert caught.value.size == 2


# looking


async def test_get_gives_a_job_of_this_queue_or_none(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("t")
    assert await queue.get(job.id) == job
    assert await queue.get("nobody") is None
    assert await Queue("letters", store=paceline_time.store).get(job.id) is None


async def test_list_filters_by_state_task_and_group(queue: Queue, paceline_time: VirtualTime) -> None:
    jobs = {
        "good": await queue.add("t"),
        "bad": await queue.add("fail", group="a"),
        "late": await queue.add("t", delay="1h", group="a"),
        "gone": await queue.add("other", delay="1h"),
    }
    await jobs["gone"].cancel()
    await run(paceline_time)
    jobs["new"] = await queue.add("t", group="a")
    names = {job.id: name for name, job in jobs.items()}

    async def listed(*args: Any, **options: Any) -> list[str]:
        return [names[job.id] for job in await queue.list(*args, **options)]

    assert await listed() == ["good", "bad", "late", "gone", "new"]
    found = {state: await listed(state) for state in STATES}
    assert found == {
        "completed": ["good"],
        "failed": ["bad"],
        "delayed": ["late"],
        "cancelled": ["gone"],
        "waiting": ["new"],
        "active": [],
        "waiting-children": [],
    }
    assert await listed(task="t") == ["good", "late", "new"]
    assert await listed(group="a") == ["bad", "late", "new"]
    assert await listed("waiting", task="t", group="a") == ["new"]
    assert await listed(state="waiting", group="nobody") == []


async def test_list_gives_pages_of_a_hundred_unless_said(queue: Queue) -> None:
    jobs = await queue.add_many([("t", n) for n in range(250)])
    first = await queue.list()
    assert [job.data for job in first] == list(range(100))
    second = await queue.list(after=first[-1].id)
    third = await queue.list(after=second[-1])
    assert [job.data for job in second + third] == list(range(100, 250))
    assert await queue.list(after=jobs[-1].id) == []
    assert [job.data for job in await queue.list(limit=3, after=jobs[9].id)] == [10, 11, 12]


async def test_counts_has_all_seven_states(queue: Queue, paceline_time: VirtualTime) -> None:
    assert await queue.counts() == dict.fromkeys(STATES, 0)

    async def handler(job: Job[Any]) -> None:
        await noop(job)
        if job.task == "long":
            await paceline_time.sleep("10s")

    for task in ("t", "t", "fail", "long"):
        await queue.add(task)
    late = [await queue.add("t", delay="1h") for _ in range(2)]
    await late[0].cancel()
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
        await queue.pause()
        await queue.add("t")
        assert await sizes(queue) == {
            "completed": 2,
            "failed": 1,
            "active": 1,
            "delayed": 1,
            "cancelled": 1,
            "waiting": 1,
        }
        await paceline_time.advance("1m")


async def test_starts_is_the_log_of_starts_as_the_store_stamped_them_d18(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    jobs = [await queue.add("t", cost=2), await queue.add("other", delay="10s", group="g")]
    await run(paceline_time, "20s")
    log = await queue.starts()
    assert log == [
        Start(jobs[0].id, timeline.began, "t", None, 2),
        Start(jobs[1].id, timeline.began + timedelta(seconds=10), "other", "g", 1),
    ]
    assert list(await queue.starts(timeline.began + timedelta(seconds=10))) == log[1:]
    assert list(await queue.starts(since=timeline.began + timedelta(seconds=11))) == []
    assert (await jobs[1].refresh()).started_at == log[1].at


async def test_the_log_of_starts_outlives_its_jobs_for_the_longest_window(
    paceline_time: VirtualTime, timeline: Timeline
) -> None:
    queue = Queue("mail", store=paceline_time.store, limits=[Rate(100, per="2h")])
    await queue.add_many([("t", n, {"keep": 0}) for n in range(3)])
    async with worker(paceline_time):
        await paceline_time.advance("1h59m")
    assert timeline.starts() == [0, 0, 0]
    assert len(await queue.starts()) == 3


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda queue: queue.list("done"), "state='done'"),
        (lambda queue: queue.list(limit=0), "limit=0"),
        (lambda queue: queue.list(limit=1.5), "limit=1.5"),
        (lambda queue: queue.clean("done", 0), "state='done'"),
        (lambda queue: queue.clean("failed", -1), "older_than=-1"),
        (lambda queue: queue.retry_jobs("done"), "state='done'"),
        (lambda queue: queue.obliterate(force=1), "force=1"),
        (lambda queue: queue.starts(datetime(2030, 1, 1)), "since=datetime"),
        (lambda queue: queue.pause(task=""), "task=''"),
        (lambda queue: queue.resume(group=5), "group=5"),
    ],
    ids=["list", "limit 0", "limit 1.5", "clean", "older_than", "retry_jobs", "force", "naive", "pause", "resume"],
)
async def test_a_wrong_question_is_an_error_that_shows_the_value(queue: Queue, call: Any, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await call(queue)
    assert shown in str(caught.value)


# close and explain


async def test_explain_by_id(queue: Queue) -> None:
    job = await queue.add("t")
    assert (await queue.explain(job.id)) == await job.explain()
    with pytest.raises(JobNotFound, match="nobody"):
        await queue.explain("nobody")


async def test_a_closed_queue_takes_no_jobs_and_the_queue_itself_lives_on(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    job = await queue.add("t")
    await queue.close()
    await queue.close()
    with pytest.raises(QueueClosed, match="'mail'"):
        await queue.add("t")
    with pytest.raises(QueueClosed):
        await queue.add_many([("t", 1)])
    other = Queue("mail", store=paceline_time.store)
    assert await sizes(other) == {"waiting": 1}
    assert await queue.get(job.id) == job
    await other.add("t")


def test_the_clock_of_the_log_is_utc(timeline: Timeline) -> None:
    assert timeline.began.tzinfo is UTC


async def test_a_queue_that_nobody_used_is_empty_in_every_way(queue: Queue) -> None:
    assert (await queue.list(), list(await queue.starts()), await sizes(queue)) == ([], [], {})
    assert [await queue.drain(), await queue.retry_jobs(), await queue.promote_jobs()] == [0, 0, 0]
    with pytest.raises(MoveNotAllowed):
        await queue.retry_jobs("waiting")
