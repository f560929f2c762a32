"""A job in a user's hands: what it shows, what it waits for, and what can be done to it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from paceline import (
    ConfigError,
    Exponential,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobState,
    LeaseLost,
    MoveNotAllowed,
    Queue,
    RateLimited,
    Worker,
    current_job,
)
from paceline.testing import VirtualTime

from .conftest import Timeline


@pytest.fixture
def queue(paceline_time: VirtualTime) -> Queue:
    return Queue("mail", store=paceline_time.store)


async def handle(job: Job[Any]) -> Any:
    if job.task == "fail":
        raise ValueError("boom")
    return {"echo": job.data}


def worker(time: VirtualTime, handler: Any = handle, **options: Any) -> Worker:
    return Worker("mail", handler, store=time.store, concurrency=10, **options)


async def finished(queue: Queue, time: VirtualTime, task: str = "t", **options: Any) -> Job[Any]:
    job = await queue.add(task, 1, **options)
    async with worker(time):
        await time.advance("1s")
    return await job.refresh()


# what it shows


async def test_the_attributes_and_defaults_of_a_new_job(queue: Queue, timeline: Timeline) -> None:
    job = await queue.add("send", {"to": "a"})
    assert isinstance(job.id, str) and job.id
    assert (job.task, job.data, job.group, job.state, job.priority) == ("send", {"to": "a"}, None, "waiting", 0)
    assert isinstance(job.state, JobState) and isinstance(job.state, str)
    assert (job.attempts_made, job.progress, job.result_value, job.error) == (0, 0, None, None)
    assert (timeline.at(job.created_at), timeline.at(job.due_at)) == (0, 0)
    assert (job.started_at, job.finished_at) == (None, None)
    assert (job.attempts, job.cost, job.logs, job.record.keep) == (1, 1, (), 7 * 86_400 * 1_000_000)


async def test_its_life_in_instants_of_the_stores_clock(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    async def handler(job: Job[Any]) -> int:
        await paceline_time.sleep("3s")
        return 7

    job = await queue.add("t", delay="10s")
    async with worker(paceline_time, handler):
        await paceline_time.advance("11s")
        assert ((await job.refresh()).state, job.attempts_made, job.result_value) == ("active", 1, None)
        assert (timeline.at(job.started_at), job.finished_at) == (10, None)
        await paceline_time.advance("10s")
    await job.refresh()
    assert (job.state, job.attempts_made, job.result_value, job.progress) == ("completed", 1, 7, 100)
    times = (job.created_at, job.due_at, job.started_at, job.finished_at)
    assert [timeline.at(when) for when in times] == [0, 10, 10, 13]
    assert [when.tzinfo for when in times if when] == [UTC] * 4


async def test_a_snapshot_changes_only_when_it_is_refreshed(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("t")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert job.state == "waiting"
    assert await job.refresh() is job
    assert job.state == "completed"


async def test_snapshots_of_one_moment_are_equal_and_the_job_inside_the_handler_is_running(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    seen: list[Any] = []

    async def handler(job: Job[Any]) -> None:
        seen.append((job.state, job.attempts_made, job.data, current_job() is job, job.finished_at))

    job = await queue.add("t", [1])
    assert await queue.get(job.id) == job and hash(job) == hash(await queue.get(job.id))
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
    assert seen == [("active", 1, [1], True, None)]
    assert await queue.get(job.id) != job


async def test_attempts_made_includes_the_running_one_and_a_429_or_a_hand_back_does_not_count(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    seen: list[int] = []

    async def handler(job: Job[Any]) -> None:
        seen.append(job.attempts_made)
        if len(seen) == 1:
            raise RateLimited(1)
        if len(seen) == 2:
            await paceline_time.sleep("1h")
        if len(seen) == 3:
            raise ValueError("boom")

    job = await queue.add("t", attempts=2)
    async with worker(paceline_time, handler) as first:
        await paceline_time.advance("5s")
        await first.stop(grace=0)
    assert ((await job.refresh()).state, job.attempts_made) == ("waiting", 0)
    async with worker(paceline_time, handler):
        await paceline_time.advance("5s")
    assert seen == [1, 1, 1, 2]
    assert ((await job.refresh()).state, job.attempts_made) == ("completed", 2)


async def test_ids_of_ones_own_are_kept_and_others_are_unique(queue: Queue) -> None:
    assert (await queue.add("t", job_id="order-7")).id == "order-7"
    jobs = await queue.add_many([("t", n) for n in range(1000)])
    assert len({job.id for job in jobs}) == 1000


# retry delays


@pytest.mark.parametrize(
    ("delay", "starts"),
    [
        (None, [0, 0, 0, 0]),
        (0, [0, 0, 0, 0]),
        ("10s", [0, 10, 20, 30]),
        (Exponential("1s", jitter=0), [0, 1, 3, 7]),
        (Exponential("1s", cap="2s", jitter=0), [0, 1, 3, 5]),
        (lambda attempt: attempt * 10, [0, 10, 30, 60]),
        (lambda attempt: "500ms", [0, 0.5, 1, 1.5]),
    ],
    ids=["at once", "zero", "fixed", "exponential", "capped", "function", "function of text"],
)
async def test_the_delay_before_the_next_attempt(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline, delay: Any, starts: list[float]
) -> None:
    await queue.add("fail", attempts=4, retry_delay=delay)
    async with worker(paceline_time):
        await paceline_time.advance("2m")
    assert timeline.starts() == starts


async def test_the_jitter_of_exponential_is_a_share_of_the_delay(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    assert Exponential("1s") == Exponential("1s", cap="24h", jitter=0.25)
    await queue.add_many([("fail", n, {"attempts": 2, "retry_delay": Exponential("8s")}) for n in range(50)])
    async with worker(paceline_time):
        await paceline_time.advance("1m")
    again = timeline.starts()[50:]
    assert len(again) == 50 and all(6 <= at <= 10 for at in again)
    assert len(set(again)) > 40


# result


async def test_result_waits_and_gives_what_the_handler_returned(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("t", 5)
    waiting = [asyncio.create_task(job.result()), asyncio.create_task(job.result(timeout="1h"))]
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert await asyncio.gather(*waiting) == [{"echo": 5}] * 2
    assert await job.result() == {"echo": 5}
    assert job.state == "completed"


async def test_result_of_a_failed_job_raises_with_id_and_error(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await finished(queue, paceline_time, "fail")
    with pytest.raises(JobFailed) as caught:
        await job.result()
    assert (caught.value.job_id, caught.value.error) == (job.id, "ValueError: boom")
    assert job.id in str(caught.value) and "boom" in str(caught.value)


async def test_result_of_a_cancelled_job_raises(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("t", delay="1h")
    waiting = asyncio.create_task(job.result())
    await paceline_time.advance("1s")
    await job.cancel()
    with pytest.raises(JobCancelled, match=job.id):
        await waiting


async def test_a_result_that_takes_too_long_is_a_timeout_and_the_job_goes_on(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    async def handler(job: Job[Any]) -> int:
        await paceline_time.sleep("1m")
        return 7

    job = await queue.add("t")
    gave_up: list[float] = []

    async def impatient() -> None:
        with pytest.raises(TimeoutError, match=job.id):
            await job.result(timeout=30)
        gave_up.append(timeline.now)

    async with worker(paceline_time, handler):
        waiting = asyncio.create_task(impatient())
        await paceline_time.advance("45s")
        await waiting
        assert (await job.refresh()).state == "active"
        await paceline_time.advance("1m")
    assert (gave_up, await job.result(timeout=0)) == ([30], 7)


async def test_result_with_a_timeout_of_zero_asks_once(queue: Queue) -> None:
    job = await queue.add("t")
    with pytest.raises(TimeoutError):
        await job.result(timeout=0)
    for wrong in (-1, "soon", float("nan")):
        with pytest.raises(ConfigError, match="timeout"):
            await job.result(timeout=wrong)


async def test_whoever_waits_for_a_job_that_is_removed_is_told(queue: Queue, paceline_time: VirtualTime) -> None:
    jobs = [await queue.add("t", delay="1h") for _ in range(3)]
    waiting = [asyncio.create_task(job.result()) for job in jobs]
    await paceline_time.advance("1s")
    await jobs[0].remove()
    await queue.drain()
    await paceline_time.advance("1s")
    assert all(task.done() for task in waiting)
    for task in waiting:
        with pytest.raises(JobNotFound):
            await task
    with pytest.raises(JobNotFound):
        await jobs[0].result()


# progress and log


async def test_progress_is_a_number_that_can_be_called(queue: Queue, paceline_time: VirtualTime) -> None:
    seen: list[Any] = []

    async def handler(job: Job[Any]) -> None:
        await job.progress(25, "a quarter")
        seen.append((job.progress, job.progress.message))
        await job.progress(75.5)
        await job.log("first")
        await job.log("second")
        raise ValueError("enough")

    job = await queue.add("t")
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
    assert seen == [(25, "a quarter")]
    assert ((await job.refresh()).progress, job.logs) == (75.5, ("first", "second"))


@pytest.mark.parametrize("percent", [-1, 101, True, "50", float("nan"), None])
async def test_a_progress_outside_of_0_to_100_is_an_error_that_shows_it(
    queue: Queue, paceline_time: VirtualTime, percent: Any
) -> None:
    async def handler(job: Job[Any]) -> None:
        await job.progress(10)
        await job.progress(percent)

    job = await queue.add("t")
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
    assert ((await job.refresh()).state, job.progress) == ("failed", 10)
    assert f"percent={percent!r}" in (job.error or "")


async def test_progress_and_log_of_a_job_that_is_not_ones_own_are_refused(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    handed: list[Job[Any]] = []

    async def handler(job: Job[Any]) -> None:
        handed.append(job)

    job = await queue.add("t")
    with pytest.raises(LeaseLost, match=job.id):
        await job.progress(50)
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
    for late in (handed[0].progress(50), handed[0].log("too late")):
        with pytest.raises(LeaseLost, match=job.id):
            await late
    assert ((await job.refresh()).progress, job.logs) == (100, ())


# moves


async def test_cancel_of_a_waiting_and_a_delayed_job_is_at_once(queue: Queue, paceline_time: VirtualTime) -> None:
    jobs = [await queue.add("t"), await queue.add("t", delay="1m")]
    for job in jobs:
        await job.cancel()
        assert (job.state, job.finished_at, job.started_at) == ("cancelled", paceline_time.now(), None)
    async with worker(paceline_time):
        await paceline_time.advance("5m")
    assert paceline_time.starts() == []


async def test_cancel_of_a_running_job_stops_its_handler(queue: Queue, paceline_time: VirtualTime) -> None:
    ended: list[str] = []

    async def handler(job: Job[Any]) -> None:
        try:
            await paceline_time.sleep("1h")
        except asyncio.CancelledError:
            ended.append("stopped")
            raise

    job = await queue.add("t", attempts=5)
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
        await job.cancel()
        await paceline_time.advance("1ms")
        assert (ended, (await job.refresh()).state) == (["stopped"], "cancelled")


async def test_promote_makes_a_delayed_job_due_now(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    job = await queue.add("t", delay="1h")
    async with worker(paceline_time):
        await paceline_time.advance("5s")
        await job.promote()
        assert (job.state, timeline.at(job.due_at)) == ("waiting", 5)
        await paceline_time.advance("1ms")
    assert timeline.starts() == [5]


@pytest.mark.parametrize("task", ["t", "fail"])
async def test_retry_runs_a_finished_job_once_more_with_all_its_attempts(
    queue: Queue, paceline_time: VirtualTime, task: str
) -> None:
    job = await finished(queue, paceline_time, task, attempts=2)
    runs = len(paceline_time.starts())
    await job.retry()
    assert (job.state, job.attempts_made, job.error, job.result_value, job.progress) == ("waiting", 0, None, None, 0)
    assert (job.started_at, job.finished_at) == (None, None)
    async with worker(paceline_time):
        await paceline_time.advance("1s")
    assert len(paceline_time.starts()) == 2 * runs


async def test_remove_deletes_a_job_that_does_not_run(queue: Queue, paceline_time: VirtualTime) -> None:
    for job in (await queue.add("t"), await queue.add("t", delay="1h"), await finished(queue, paceline_time)):
        await job.remove()
        assert await queue.get(job.id) is None
        with pytest.raises(JobNotFound, match=job.id) as caught:
            await job.refresh()
        assert caught.value.job_id == job.id
    assert sum((await queue.counts()).values()) == 0


FORBIDDEN = [
    ("completed", "cancel"),
    ("failed", "cancel"),
    ("cancelled", "cancel"),
    ("waiting", "promote"),
    ("active", "promote"),
    ("completed", "promote"),
    ("waiting", "retry"),
    ("delayed", "retry"),
    ("active", "retry"),
    ("active", "remove"),
]


@pytest.mark.parametrize(("state", "move"), FORBIDDEN)
async def test_a_move_that_its_state_does_not_allow_is_an_error_and_changes_nothing(
    queue: Queue, paceline_time: VirtualTime, state: str, move: str
) -> None:
    async def handler(job: Job[Any]) -> None:
        if state == "active":
            await paceline_time.sleep("10s")
        await handle(job)

    job = await queue.add("fail" if state == "failed" else "t", delay="1h" if state == "delayed" else None)
    if state == "cancelled":
        await job.cancel()
    if state in ("waiting", "delayed", "cancelled"):
        await queue.pause()
    async with worker(paceline_time, handler):
        await paceline_time.advance("1s")
        assert (await job.refresh()).state == state
        with pytest.raises(MoveNotAllowed) as caught:
            await getattr(job, move)()
        assert (caught.value.state, caught.value.wanted, caught.value.job_id) == (state, move, job.id)
        assert (await job.refresh()).state == state
        await paceline_time.advance("10s")


@pytest.mark.parametrize("move", ["cancel", "promote", "retry", "remove"])
async def test_a_move_of_a_job_that_is_gone_is_an_error(queue: Queue, move: str) -> None:
    job = await queue.add("t")
    await job.remove()
    with pytest.raises(JobNotFound, match=job.id):
        await getattr(job, move)()


# keep


@pytest.mark.parametrize(("keep", "after", "stays"), [("1h", "59m", True), ("1h", "62m", False), (None, "62m", True)])
async def test_a_finished_job_stays_for_its_keep(
    queue: Queue, paceline_time: VirtualTime, keep: str | None, after: str, stays: bool
) -> None:
    job = await queue.add("t", keep=keep)
    async with worker(paceline_time):
        await paceline_time.advance(after)
    assert (await queue.get(job.id) is not None) == stays


async def test_keep_0_removes_a_job_when_it_ends_and_not_before(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("fail", keep=0, attempts=2, retry_delay="1m")
    async with worker(paceline_time):
        await paceline_time.advance("1s")
        assert (await job.refresh()).state == "delayed"
        await paceline_time.advance("2m")
    assert await queue.get(job.id) is None


async def test_a_job_that_never_ends_is_never_removed(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("t", keep="1m")
    await queue.pause()
    async with worker(paceline_time):
        await paceline_time.advance("1h")
    assert (await job.refresh()).state == "waiting"


def test_datetimes_of_the_fixture_are_aware(timeline: Timeline) -> None:
    assert timeline.began > datetime(2000, 1, 1, tzinfo=UTC)
