"""The cases of `seed-systems.md` 3.10 that concern limits, retries, restart and progress, as equalities."""

from __future__ import annotations

import asyncio

import pytest

from paceline import App, Fail, JobCancelled, JobFailed, Rate, Retry, current_job
from paceline.testing import VirtualTime

from .conftest import Timeline


async def noop(n: int = 0) -> int:
    return n


# basics


async def test_an_added_job_is_waiting_and_the_queue_has_one(app: App) -> None:
    job = await app.task(name="step")(noop).enqueue()
    assert job.state == "waiting"
    assert (await app.queue().counts())["waiting"] == 1


async def test_a_finished_job_stays_for_its_keep_and_no_longer(app: App, paceline_time: VirtualTime) -> None:
    task = app.task(name="step")(noop)
    kept, gone, short = [await task.using(keep=keep).enqueue() for keep in (None, 0, "10m")]
    async with app.worker():
        await paceline_time.advance("1s")
        assert await app.get(gone.id) is None
        assert await app.get(short.id) is not None
        await paceline_time.advance("9m")
        assert await app.get(short.id) is not None
        await paceline_time.advance("2m")
        assert await app.get(short.id) is None
    await paceline_time.advance("365 days")
    async with app.worker():
        await paceline_time.advance("2m")
    assert await app.get(kept.id) is not None


async def test_a_failed_job_is_removed_at_once_too_when_it_asked_for_it(app: App, paceline_time: VirtualTime) -> None:
    @app.task(keep=0)
    async def fail() -> None:
        raise ValueError("boom")

    job = await fail.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
    assert await app.get(job.id) is None
    assert sum((await app.queue().counts()).values()) == 0


async def test_the_result_of_a_job_that_is_not_kept_still_reaches_whoever_waits(
    app: App, paceline_time: VirtualTime
) -> None:
    job = await app.task(name="step")(noop).using(keep=0).enqueue(7)
    waiting = asyncio.create_task(job.result())
    async with app.worker():
        await paceline_time.advance("1s")
    assert await waiting == 7


async def test_two_queues_are_apart_in_everything(app: App, paceline_time: VirtualTime) -> None:
    one, two = app.queue("one"), app.queue("two")
    job = await one.add("step", {"args": [], "kwargs": {}})
    await two.add("step", {"args": [], "kwargs": {}})
    assert await two.get(job.id) is None
    assert [each.id for each in await one.list()] == [job.id]
    app.task(name="step")(noop)
    async with app.worker(queues=["one"]):
        await paceline_time.advance("1s")
    assert ((await one.counts())["completed"], (await two.counts())["waiting"]) == (1, 1)
    assert (len(await one.starts()), len(await two.starts())) == (1, 0)
    await two.drain()
    assert [sum((await queue.counts()).values()) for queue in (one, two)] == [1, 0]


async def test_a_running_job_that_is_cancelled_tells_whoever_waits(app: App, paceline_time: VirtualTime) -> None:
    ended: list[str] = []

    @app.task()
    async def long() -> None:
        try:
            await paceline_time.sleep("1h")
        finally:
            ended.append("cleaned up")

    job = await long.enqueue()
    waiting = asyncio.create_task(job.result())
    async with app.worker():
        await paceline_time.advance("1s")
        assert (await job.refresh()).state == "active"
        await job.cancel()
        await paceline_time.advance("1s")
    assert ((await job.refresh()).state, ended) == ("cancelled", ["cleaned up"])
    with pytest.raises(JobCancelled, match=job.id):
        await waiting


# limits


async def test_16_jobs_under_four_per_minute_leave_twelve_waiting(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("four", Rate(4, per="60s"))
    await app.task(name="step")(noop).enqueue_many([()] * 16)
    async with app.worker():
        await paceline_time.advance("59.999s")
        counts = await app.queue().counts()
        assert (counts["completed"], counts["waiting"]) == (4, 12)
        await paceline_time.advance("121s")
    assert timeline.starts() == [60 * (n // 4) for n in range(16)]


@pytest.mark.parametrize("jobs", [10, 20, 30])
async def test_the_sum_of_all_states_is_always_the_number_of_jobs(
    app: App, paceline_time: VirtualTime, jobs: int
) -> None:
    app.limit("five", Rate(5, per="60s"))
    await app.task(name="step")(noop).enqueue_many([()] * jobs)
    async with app.worker(workers=2):
        for minute in range(7):
            await paceline_time.advance("1s" if minute == 0 else "60s")
            counts = await app.queue().counts()
            assert sum(counts.values()) == jobs
            assert counts["completed"] == min(5 * (minute + 1), jobs)


# restart


async def test_a_worker_that_stopped_can_start_again_and_goes_on(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    task = app.task(name="step")(noop)
    worker = app.worker()
    first = await task.enqueue(1)
    async with worker:
        await paceline_time.advance("1s")
    assert await first.result() == 1
    second = await task.enqueue(2)
    await paceline_time.advance("1m")
    assert (await second.refresh()).state == "waiting"
    async with worker:
        await paceline_time.advance("1s")
    assert await second.result() == 2
    assert timeline.starts() == [0, 61]


async def test_a_restart_forgets_no_start_that_counts(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    app.limit("four", Rate(4, per="60s"))
    await app.task(name="step")(noop).enqueue_many([()] * 12)
    for _ in range(3):
        again = App(app.store)
        again.limit("four", Rate(4, per="60s"))
        again.task(name="step")(noop)
        async with again.worker():
            await paceline_time.advance("19s")
    assert timeline.starts() == [0] * 4
    async with app.worker():
        await paceline_time.advance("1m10s")
    assert timeline.starts() == [0] * 4 + [60] * 4 + [120] * 4


# retries


async def test_an_error_without_attempts_fails_at_once(app: App, paceline_time: VirtualTime) -> None:
    @app.task()
    async def fail() -> None:
        raise ValueError("boom")

    job = await fail.enqueue()
    async with app.worker():
        await paceline_time.advance("1h")
    assert ((await job.refresh()).state, job.attempts_made, job.error) == ("failed", 1, "ValueError: boom")


async def test_two_more_tries_are_three_attempts(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    seen: list[int] = []

    @app.task(attempts=3, retry_delay="10s")
    async def fail() -> None:
        seen.append(current_job().attempts_made)
        raise ValueError("boom")

    job = await fail.enqueue()
    async with app.worker():
        await paceline_time.advance("1h")
    assert (seen, timeline.starts()) == ([1, 2, 3], [0, 10, 20])
    assert ((await job.refresh()).state, job.attempts_made) == ("failed", 3)
    with pytest.raises(JobFailed, match="boom"):
        await job.result()


async def test_a_permanent_error_uses_one_attempt(app: App, paceline_time: VirtualTime) -> None:
    @app.task(attempts=10)
    async def fail() -> None:
        raise Fail("for good")

    job = await fail.enqueue()
    async with app.worker():
        await paceline_time.advance("1h")
    assert ((await job.refresh()).state, job.attempts_made, job.error) == ("failed", 1, "for good")


async def test_a_retry_meets_the_limits_like_every_start(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("two", Rate(2, per="1m"))

    @app.task(attempts=5)
    async def step() -> None:
        if current_job().attempts_made < 4:
            raise Retry()

    await step.enqueue()
    async with app.worker():
        await paceline_time.advance("5m")
    assert timeline.starts() == [0, 0, 60, 60]


# progress


UPDATES = [(25, "Starting task"), (50, "Halfway there"), (75, "Almost done"), (100, "Completed")]


async def test_progress_is_seen_by_everybody_while_the_job_runs(app: App, paceline_time: VirtualTime) -> None:
    @app.task()
    async def step() -> str:
        for percent, message in UPDATES:
            await current_job().progress(percent, message)
            await current_job().log(message)
            await paceline_time.sleep("1s")
        return "done"

    job = await step.enqueue()
    assert (job.progress, job.progress.message) == (0, None)
    seen = []
    async with app.worker():
        await paceline_time.advance("500ms")
        for _ in UPDATES:
            found = await app.get(job.id)
            assert found is not None
            seen.append((found.progress, found.progress.message))
            await paceline_time.advance("1s")
    assert seen == UPDATES
    assert (await job.result(), job.progress, job.logs) == ("done", 100, tuple(text for _, text in UPDATES))


async def test_a_plain_handler_reports_progress_and_log_lines_too(app: App, paceline_time: VirtualTime) -> None:
    @app.task()
    def step() -> None:
        current_job().progress_sync(40, "so far")
        current_job().log_sync("a line")
        raise Fail("enough")

    job = await step.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
    await job.refresh()
    assert (job.progress, job.progress.message, job.logs) == (40, "so far", ("a line",))
