"""Pause, drain, clean, obliterate, retry and promote: a queue as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import Concurrency, Job, JobNotFound, MoveNotAllowed, Queue, Rate, Worker
from paceline.testing import VirtualTime

from .conftest import Timeline


@pytest.fixture
def queue(paceline_time: VirtualTime) -> Queue:
    return Queue("mail", store=paceline_time.store)


class Handler:
    """Ends at once; the task `fail` raises, the task `long` takes ten seconds."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time

    async def __call__(self, job: Job[Any]) -> None:
        if job.task == "fail":
            raise ValueError("boom")
        if job.task == "long":
            await self.time.sleep("10s")


def worker(time: VirtualTime) -> Worker:
    return Worker("mail", Handler(time), store=time.store, concurrency=100)


async def sizes(queue: Queue) -> dict[str, int]:
    return {state: number for state, number in (await queue.counts()).items() if number}


# pause


@pytest.mark.parametrize(
    ("options", "stopped"),
    [({}, {"plain", "grouped", "other"}), ({"task": "t"}, {"plain", "grouped"}), ({"group": "g"}, {"grouped"})],
    ids=["queue", "task", "group"],
)
async def test_a_pause_stops_what_it_names_until_it_is_taken_back(
    queue: Queue, paceline_time: VirtualTime, options: dict[str, str], stopped: set[str]
) -> None:
    await queue.pause(**options)
    jobs = {
        "plain": await queue.add("t"),
        "grouped": await queue.add("t", group="g"),
        "other": await queue.add("other", group="h"),
    }
    async with worker(paceline_time):
        await paceline_time.advance("1h")
        waiting = {name for name, job in jobs.items() if (await job.refresh()).state == "waiting"}
        assert waiting == stopped
        await queue.resume(**options)
        await paceline_time.advance("1ms")
        assert await sizes(queue) == {"completed": 3}


async def test_a_pause_is_persistent_and_the_same_for_every_worker(queue: Queue, paceline_time: VirtualTime) -> None:
    await queue.pause()
    await Queue("mail", store=paceline_time.store).add("t")
    for _ in range(2):
        async with worker(paceline_time), worker(paceline_time):
            await paceline_time.advance("1m")
    assert await sizes(queue) == {"waiting": 1}
    await Queue("mail", store=paceline_time.store).resume()
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert await sizes(queue) == {"completed": 1}


async def test_what_runs_goes_on_when_the_queue_is_paused(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("long")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
        await queue.pause()
        await paceline_time.advance("10s")
        assert (await job.refresh()).state == "completed"


async def test_pausing_twice_is_pausing_once_and_one_resume_is_enough(queue: Queue, paceline_time: VirtualTime) -> None:
    for _ in range(2):
        await queue.pause()
    await queue.resume()
    await queue.add("t")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert await sizes(queue) == {"completed": 1}


async def test_pauses_are_independent_of_each_other(queue: Queue, paceline_time: VirtualTime) -> None:
    await queue.pause()
    await queue.pause(task="t")
    await queue.pause(group="g")
    job = await queue.add("t", group="g")
    async with worker(paceline_time):
        for resume in ({}, {"task": "t"}, {"group": "g"}):
            await paceline_time.advance("1s")
            assert (await job.refresh()).state == "waiting"
            await queue.resume(**resume)
        await paceline_time.advance("1s")
        assert (await job.refresh()).state == "completed"


async def test_a_pause_of_one_queue_leaves_others_alone(queue: Queue, paceline_time: VirtualTime) -> None:
    letters = Queue("letters", store=paceline_time.store)
    await letters.pause()
    await queue.add("t")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert await sizes(queue) == {"completed": 1}


# drain and clean


async def test_drain_removes_what_has_not_started_and_nothing_else(queue: Queue, paceline_time: VirtualTime) -> None:
    await queue.add("t")
    await queue.add("fail")
    running = await queue.add("long")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
        await queue.pause()
        gone = [await queue.add("t"), await queue.add("t", delay="1h", group="g")]
        assert await queue.drain() == 2
        assert [await queue.get(job.id) for job in gone] == [None, None]
        assert await sizes(queue) == {"completed": 1, "failed": 1, "active": 1}
        await paceline_time.advance("10s")
    assert (await running.refresh()).state == "completed"


async def test_clean_removes_jobs_of_one_state_that_are_older(queue: Queue, paceline_time: VirtualTime) -> None:
    async with worker(paceline_time):
        for task in ("t", "fail"):
            await queue.add(task)
        await paceline_time.advance("1m")
        young = await queue.add("t")
        await paceline_time.advance("30s")
        assert await queue.clean("completed", "2m") == 0
        assert await queue.clean("completed", "1m") == 1
        assert await sizes(queue) == {"completed": 1, "failed": 1}
        assert await queue.clean("failed", 0) == 1
    assert [job.id for job in await queue.list()] == [young.id]


@pytest.mark.parametrize(("state", "options"), [("waiting", {}), ("delayed", {"delay": "9h"})])
async def test_clean_works_for_jobs_that_wait_too(
    queue: Queue, paceline_time: VirtualTime, state: str, options: dict[str, Any]
) -> None:
    job = await queue.add("t", **options)
    await paceline_time.advance("1h")
    assert await queue.clean(state, "2h") == 0
    assert await queue.clean(state, "30m") == 1
    assert await queue.get(job.id) is None


async def test_clean_never_removes_a_running_job(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("long")
    async with worker(paceline_time):
        await paceline_time.advance("5s")
        with pytest.raises(MoveNotAllowed, match="active"):
            await queue.clean("active", 0)
        await paceline_time.advance("10s")
    assert (await job.refresh()).state == "completed"


# obliterate


async def test_obliterate_removes_the_queue_with_everything_in_it(queue: Queue, paceline_time: VirtualTime) -> None:
    for task in ("t", "fail"):
        await queue.add(task)
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    await queue.pause()
    await queue.add("t")
    await queue.add("t", delay="1h")
    assert await queue.obliterate() == 4
    assert (await queue.list(), await sizes(queue), list(await queue.starts())) == ([], {}, [])
    await queue.add("t")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert await sizes(queue) == {"completed": 1}


async def test_obliterate_refuses_while_jobs_run_unless_forced(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("long")
    waiting = await queue.add("t", delay="1h")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
        with pytest.raises(MoveNotAllowed) as caught:
            await queue.obliterate()
        assert caught.value.state == "active" and "force=True" in str(caught.value)
        assert await sizes(queue) == {"active": 1, "delayed": 1}
        assert await queue.obliterate(force=True) == 2
        assert await sizes(queue) == {}
        await paceline_time.advance("20s")
    assert await sizes(queue) == {}
    for gone in (job, waiting):
        with pytest.raises(JobNotFound):
            await gone.refresh()


async def test_obliterate_clears_the_counters_of_limits_that_cover_this_queue_alone(
    paceline_time: VirtualTime, timeline: Timeline
) -> None:
    queue = Queue("mail", store=paceline_time.store, limits=[Rate(1, per="1h") & Concurrency(1)])
    async with worker(paceline_time):
        await queue.add("t")
        await paceline_time.advance("1s")
        await queue.obliterate()
        await queue.add("t")
        await paceline_time.advance("1s")
    assert timeline.starts() == [1]


async def test_obliterate_leaves_other_queues_alone(queue: Queue, paceline_time: VirtualTime) -> None:
    letters = Queue("letters", store=paceline_time.store)
    job = await letters.add("t")
    await queue.obliterate()
    assert await letters.get(job.id) == job


# retry and promote all


async def test_retry_jobs_runs_all_failed_jobs_again_from_their_first_attempt(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    jobs = await queue.add_many([("fail", n, {"attempts": 2}) for n in range(3)])
    await queue.add("t")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
        assert await sizes(queue) == {"failed": 3, "completed": 1}
        await queue.pause()
        assert await queue.retry_jobs() == 3
        assert await sizes(queue) == {"waiting": 3, "completed": 1}
        job = await jobs[0].refresh()
        assert (job.attempts_made, job.error, job.finished_at) == (0, None, None)
        await queue.resume()
        await paceline_time.advance("1s")
    assert len(paceline_time.starts("fail")) == 12
    assert await sizes(queue) == {"failed": 3, "completed": 1}


@pytest.mark.parametrize("state", ["completed", "cancelled"])
async def test_retry_jobs_of_another_final_state(queue: Queue, paceline_time: VirtualTime, state: str) -> None:
    job = await queue.add("t", delay="1h" if state == "cancelled" else None)
    if state == "cancelled":
        await job.cancel()
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert await queue.retry_jobs() == 0
    assert await queue.retry_jobs(state) == 1
    assert await sizes(queue) == {"waiting": 1}


@pytest.mark.parametrize("state", ["waiting", "delayed", "active"])
async def test_retry_jobs_of_a_state_that_is_not_final_is_an_error(queue: Queue, state: str) -> None:
    await queue.add("t")
    with pytest.raises(MoveNotAllowed, match=state):
        await queue.retry_jobs(state)
    assert await sizes(queue) == {"waiting": 1}


async def test_promote_jobs_makes_all_delayed_jobs_due_now(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    await queue.add_many([("t", n, {"delay": "1h"}) for n in range(3)])
    async with worker(paceline_time):
        await paceline_time.advance("5s")
        assert await queue.promote_jobs() == 3
        await paceline_time.advance("1ms")
        assert await queue.promote_jobs() == 0
    assert timeline.starts() == [5, 5, 5]
