"""Cancel in every state: at once while a job waits, and a running handler is stopped at once."""

from __future__ import annotations

import asyncio
import threading
import time as real

import pytest

from paceline import (
    Concurrency,
    Group,
    JobCancelled,
    MoveNotAllowed,
    Queue,
    RateLimited,
    Retry,
    Unique,
    Worker,
    open_store,
)
from paceline.stores.interface import Ask

from .helpers import add, after, nothing, started, states, takes, working

# while it waits


@pytest.mark.parametrize("options", [{}, {"delay": "1h"}], ids=["waiting", "delayed"])
async def test_a_job_that_has_not_started_is_cancelled_at_once_and_never_runs(time, options):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", **options)

    await time.advance("5s")
    await job.cancel()

    assert (job.state, after(job.finished_at), job.cancelled, job.attempts_made) == ("cancelled", 5, True, 0)
    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("2h")
    assert await started(queue) == []
    assert await queue.counts() | {"cancelled": 1, "waiting": 0, "delayed": 0} == await queue.counts()


async def test_a_job_that_waits_for_its_limit_or_its_next_attempt_can_be_cancelled(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(1)])

    async def first_fails(job):
        if job.data == 0:
            raise OSError("down")
        await time.sleep("1h")

    retried, running, limited = await add(queue, 3, attempts=2, retry_delay="2h")
    async with working(Worker("line", first_fails, store=time.store, concurrency=3)):
        await time.advance("5s")
        assert await states([retried, running, limited]) == ["delayed", "active", "waiting"]
        await retried.cancel()
        await limited.cancel()
        await time.advance("4h")

    assert await states([retried, running, limited]) == ["cancelled", "completed", "cancelled"]
    assert await started(queue) == [0, 0]


async def test_a_cancelled_job_makes_room_in_its_group_and_frees_its_unique_key(time):
    queue = Queue("line", store=time.store)
    options = {"group": Group("a", max_size=1), "unique": Unique("only one")}
    job = await queue.add("work", **options)
    assert (await queue.add("work", **options)).id == job.id

    await job.cancel()

    other = await queue.add("work", **options)
    assert other.id != job.id


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
async def test_a_finished_job_cannot_be_cancelled_and_stays_what_it_is(time, ending):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async def handler(job):
        if ending == "failed":
            raise OSError("down")

    if ending == "cancelled":
        await job.cancel()
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("5s")

    with pytest.raises(MoveNotAllowed) as refused:
        await job.cancel()
    assert (refused.value.state, refused.value.wanted) == (ending, "cancel")
    assert await states([job]) == [ending]


# while it runs


async def test_a_running_async_handler_is_stopped_at_once(time):
    queue = Queue("line", store=time.store)
    stopped = []

    async def handler(job):
        try:
            await time.sleep("1h")
        except asyncio.CancelledError:
            stopped.append((after(time.now()), job.cancelled))
            raise

    job = await queue.add("work", attempts=5)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("7s")
        await job.cancel()
        await time.advance(0)

        assert stopped == [(7, True)]
        await job.refresh()
        assert (job.state, after(job.finished_at), job.result_value) == ("cancelled", 7, None)
        # Not tried again, whatever attempts are left.
        await time.advance("1h")
    assert await started(queue) == [0]


async def test_only_the_cancelled_job_is_stopped_and_the_next_one_starts_in_its_slot_at_that_instant(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(2)])
    jobs = await add(queue, 3)

    async with working(*(Worker("line", takes(time, "10s"), store=time.store, concurrency=2) for _ in range(2))):
        await time.advance("3s")
        await jobs[0].cancel()
        await time.advance("1h")

    assert await states(jobs) == ["cancelled", "completed", "completed"]
    assert await started(queue) == [0, 0, 3]


async def test_a_cancelled_handler_keeps_its_slot_until_it_has_cleaned_up(time):
    queue = Queue("line", store=time.store)
    first, second = await add(queue, 2)

    async def tidy(job):
        if job.data == 0:
            try:
                await time.sleep("1h")
            finally:
                await time.sleep("4s")

    async with working(Worker("line", tidy, store=time.store)):
        await time.advance("1s")
        await first.cancel()
        await time.advance("3s")
        assert await states([first, second]) == ["active", "waiting"]
        assert first.cancelled
        await time.advance("1s")

        assert await states([first, second]) == ["cancelled", "completed"]
    assert await started(queue) == [0, 5]


@pytest.mark.parametrize("answer", ["returns", "fails", "retries", "is rate limited"])
async def test_what_a_cancelled_handler_makes_of_it_does_not_matter(time, answer):
    queue = Queue("line", store=time.store)

    async def handler(job):
        try:
            await time.sleep("1h")
        except asyncio.CancelledError:
            if answer == "fails":
                raise OSError("down") from None
            if answer == "retries":
                raise Retry(after="1s") from None
            if answer == "is rate limited":
                raise RateLimited(retry_after="1s") from None
            return "value"

    job = await queue.add("work", attempts=5)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1s")
        await job.cancel()
        await time.advance("2h")

    assert (await states([job]), job.result_value) == (["cancelled"], None)
    assert await started(queue) == [0]


async def test_a_cancelled_job_whose_worker_died_is_cancelled_at_the_end_of_its_lease_and_never_runs_again(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    ran = []

    async def handler(job):
        ran.append(job.id)

    await time.store.claim(Ask(queues=("line",), slots=1, worker="dead", lease=10_000_000))
    await job.cancel()
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("9s")
        assert await states([job]) == ["active"]
        await time.advance("1s")

    assert (await states([job]), after(job.finished_at), ran) == (["cancelled"], 10, [])


async def test_result_raises_job_cancelled_for_those_who_wait_already_and_for_those_who_come_later(time):
    queue = Queue("line", store=time.store)
    running, waiting = await add(queue, 2)

    async with working(Worker("line", takes(time, "1h"), store=time.store)):
        waits = [asyncio.ensure_future(job.result()) for job in (running, waiting)]
        await time.advance("1s")
        await waiting.cancel()
        await running.cancel()
        await time.advance(0)

        for wait in waits:
            with pytest.raises(JobCancelled):
                await asyncio.wait_for(wait, 5)
        with pytest.raises(JobCancelled):
            await running.result()


async def test_a_timeout_of_result_does_not_cancel_the_job(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async with working(Worker("line", takes(time, "10s"), store=time.store)):
        wait = asyncio.ensure_future(job.result(timeout="3s"))
        await time.advance("3s")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait, 5)
        await time.advance("7s")

    assert await states([job]) == ["completed"]


async def test_a_handler_is_stopped_at_once_also_while_its_worker_is_paused(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    worker = Worker("line", takes(time, "1h"), store=time.store)

    async with working(worker):
        await time.advance("1s")
        worker.pause()
        await time.advance("1s")
        await job.cancel()
        await time.advance(0)

        assert (await states([job]), after(job.finished_at)) == (["cancelled"], 2)


async def test_a_handler_is_stopped_at_once_also_while_its_worker_stops(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    worker = Worker("line", takes(time, "1h"), store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    stopping = asyncio.create_task(worker.stop(grace="25s"))
    await time.advance("1s")
    await job.cancel()
    await time.advance("1h")
    await asyncio.wait_for(asyncio.gather(running, stopping), 5)

    assert (await states([job]), after(job.finished_at)) == (["cancelled"], 2)


async def test_a_cancelled_job_can_be_retried_and_then_runs_like_a_new_one(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    seen = []

    async def handler(job):
        seen.append((job.attempts_made, job.cancelled))
        if len(seen) == 1:
            await time.sleep("1h")

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1s")
        await job.cancel()
        await time.advance("1s")
        await job.retry()
        await time.advance("1s")

    assert seen == [(1, False), (1, False)]
    assert (await states([job]), job.cancelled) == (["completed"], False)


# in a batch


async def test_a_batch_goes_on_when_one_of_its_jobs_is_cancelled_and_the_handler_can_see_which(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)
    seen = []

    async def handler(jobs):
        await time.sleep("10s")
        seen.extend(job.cancelled for job in jobs)
        return ["a", "b", "c"]

    async with working(Worker("line", handler, store=time.store, batch=3)):
        await time.advance("1s")
        await jobs[1].cancel()
        await time.advance("1m")

    assert seen == [False, True, False]
    assert await states(jobs) == ["completed", "cancelled", "completed"]
    assert [job.result_value for job in jobs] == ["a", None, "c"]


async def test_a_batch_is_stopped_when_the_last_of_its_jobs_is_cancelled(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)

    async with working(Worker("line", takes(time, "1h"), store=time.store, batch=3)):
        await time.advance("1s")
        for job in jobs:
            await job.cancel()
            await time.advance("1s")

    assert await states(jobs) == ["cancelled"] * 3
    assert [after(job.finished_at) for job in jobs] == [3, 3, 3]


async def test_a_cancelled_job_of_a_batch_that_fails_is_not_retried_and_the_others_are(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 2, attempts=2, retry_delay="1m")

    async def handler(jobs):
        await time.sleep("10s")
        raise OSError("down")

    async with working(Worker("line", handler, store=time.store, batch=2)):
        await time.advance("1s")
        await jobs[0].cancel()
        await time.advance("20s")

        assert await states(jobs) == ["cancelled", "delayed"]


# in a thread (real time: a thread cannot sleep on a clock that a test moves)


async def test_a_thread_sees_that_its_job_was_cancelled_and_is_waited_for():
    store = open_store("memory://")
    queue = Queue("line", store=store)
    job, after_it = await queue.add("work"), await queue.add("work", "quick")
    saw = []
    began = threading.Event()

    def looks(job):
        if job.data == "quick":
            return
        began.set()
        deadline = real.monotonic() + 10
        while not job.cancelled and real.monotonic() < deadline:
            real.sleep(0.001)
        saw.append(job.cancelled)

    async with Worker("line", looks, store=store) as worker:
        assert await asyncio.to_thread(began.wait, 10)
        asked = real.monotonic()
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=10)
        # Told at once, not with the next heartbeat, which comes after ten seconds.
        assert real.monotonic() - asked < 5
        await after_it.result(timeout=10)
        assert worker.insurance_wakeups == 0
    assert saw == [True]
