"""Timeouts really stop async handlers, and the slot is kept until the handler has ended."""

from __future__ import annotations

import asyncio

import pytest

from paceline import Concurrency, GroupLimits, Limit, Queue, Worker

from .helpers import add, after, started, states, takes, working


class Tidy:
    """A handler that takes an hour, and a while more to clean up when it is stopped; jobs with data take no time."""

    def __init__(self, time, cleanup: str):
        self._time = time
        self._cleanup = cleanup
        self.stopped: list[float] = []
        self.ended: list[float] = []

    async def __call__(self, job):
        if job.data is not None:
            return
        try:
            await self._time.sleep("1h")
        except asyncio.CancelledError:
            self.stopped.append(after(self._time.now()))
            await self._time.sleep(self._cleanup)
            raise
        finally:
            self.ended.append(after(self._time.now()))


async def test_a_handler_is_stopped_at_the_instant_its_timeout_is_over_and_the_attempt_fails(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="100ms")
    handler = Tidy(time, "0s")

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("5s")

    assert handler.stopped == handler.ended == [0.1]
    await job.refresh()
    assert (job.state, job.error, after(job.finished_at)) == ("failed", "TimeoutError: timed out after 100ms", 0.1)


async def test_a_handler_that_ends_in_time_is_not_touched_and_neither_is_the_next_one_in_its_slot(time):
    queue = Queue("line", store=time.store)
    jobs = [await queue.add("work", "900ms", timeout="1s"), await queue.add("work", "5s")]

    async def handler(job):
        await time.sleep(job.data)

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("10s")

    assert await states(jobs) == ["completed", "completed"]


async def test_a_handler_that_ends_at_the_very_instant_of_its_timeout_ends_either_way_but_once(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="1s")

    async with working(Worker("line", takes(time, "1s"), store=time.store)):
        await time.advance("5s")

    assert (await states([job]))[0] in ("completed", "failed")
    assert after(job.finished_at) == 1
    assert await started(queue) == [0]


async def test_a_timeout_counts_from_the_start_of_each_attempt_and_uses_one(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="2s", attempts=3, retry_delay="10s", delay="1m")
    handler = Tidy(time, "0s")

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("10m")

    assert await started(queue) == [60, 72, 84]
    assert handler.stopped == [62, 74, 86]
    assert (await states([job]), job.attempts_made) == (["failed"], 3)


async def test_every_job_has_a_timeout_of_its_own(time):
    queue = Queue("line", store=time.store)
    jobs = [await queue.add("work", timeout=timeout) for timeout in ("3s", "1s", "2s")]
    jobs.append(await queue.add("work"))

    async with working(Worker("line", takes(time, "10s"), store=time.store, concurrency=4)):
        await time.advance("20s")

    assert await states(jobs) == ["failed", "failed", "failed", "completed"]
    assert [after(job.finished_at) for job in jobs] == [3, 1, 2, 10]


async def test_the_slot_is_kept_until_a_handler_that_takes_long_to_clean_up_has_ended(time):
    queue = Queue("line", store=time.store)
    first = await queue.add("work", timeout="1s")
    await queue.add("work", "quick")
    handler = Tidy(time, "5s")

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("5.999999s")
        assert await states([first]) == ["active"]
        assert await started(queue) == [0]
        await time.advance("1us")
        assert await states([first]) == ["failed"]

        assert handler.stopped == [1]
        assert await started(queue) == [0, 6]


async def test_a_concurrency_limit_counts_a_timed_out_handler_until_it_has_ended(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(1)])
    await queue.add("work", timeout="1s")
    await queue.add("work", "quick")

    async with working(*(Worker("line", Tidy(time, "5s"), store=time.store, concurrency=2) for _ in range(2))):
        await time.advance("1m")

    assert await started(queue) == [0, 6]


async def test_a_group_counts_a_timed_out_handler_until_it_has_ended(time):
    queue = Queue("line", store=time.store)
    for group in ("a", "a", "b"):
        await queue.add("work", group=group, timeout="1s")
    worker = Worker("line", Tidy(time, "5s"), store=time.store, concurrency=9, group=GroupLimits(concurrency=1))

    async with working(worker):
        await time.advance("1m")

    assert [(start.group, after(start.at)) for start in await queue.starts()] == [("a", 0), ("b", 0), ("a", 6)]


async def test_cleaning_up_for_longer_than_the_lease_does_not_lose_the_job_to_another_worker(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="1s")
    slow, other = (Worker("line", Tidy(time, "5m"), store=time.store, lease="10s") for _ in range(2))

    async with working(slow, other):
        await time.advance("1h")

    assert await started(queue) == [0]
    assert (await states([job]), job.crashes, after(job.finished_at)) == (["failed"], 0, 301)


async def test_a_handler_that_swallows_the_cancellation_and_returns_has_timed_out_all_the_same(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="1s")

    async def stubborn(job):
        try:
            await time.sleep("1h")
        except asyncio.CancelledError:
            return "too late"

    async with working(Worker("line", stubborn, store=time.store)):
        await time.advance("5s")

    assert (await states([job]), job.result_value) == (["failed"], None)
    assert job.error == "TimeoutError: timed out after 1s"


async def test_a_handler_that_raises_its_own_error_while_it_is_stopped_has_timed_out(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="1s")

    async def complains(job):
        try:
            await time.sleep("1h")
        except asyncio.CancelledError:
            raise RuntimeError("I was not done") from None

    async with working(Worker("line", complains, store=time.store)):
        await time.advance("5s")

    assert (await states([job]), job.error) == (["failed"], "TimeoutError: timed out after 1s")


async def test_timeouts_go_on_while_the_worker_stops(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="5s")
    worker = Worker("line", takes(time, "1h"), store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    stopping = asyncio.create_task(worker.stop(grace="1m"))
    await time.advance("1h")
    await asyncio.wait_for(asyncio.gather(stopping, running), 5)

    assert (await states([job]), after(job.finished_at)) == (["failed"], 5)


async def test_timeouts_go_on_while_the_worker_is_paused(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", timeout="5s")
    worker = Worker("line", takes(time, "1h"), store=time.store)

    async with working(worker):
        await time.advance("1s")
        worker.pause()
        await time.advance("1m")

    assert (await states([job]), after(job.finished_at)) == (["failed"], 5)


@pytest.mark.parametrize("number", [50])
async def test_many_timeouts_at_once_free_all_their_slots_at_that_instant(time, number):
    limit = Limit("service", Concurrency(number), tasks=["work"])
    queue = Queue("line", store=time.store, limits=[limit])
    await add(queue, 2 * number, timeout="1s")

    async with working(Worker("line", takes(time, "1h"), store=time.store, concurrency=2 * number)):
        await time.advance("10s")

    assert await started(queue) == [0] * number + [1] * number
