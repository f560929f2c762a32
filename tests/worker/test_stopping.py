"""How a worker ends: until nothing is left, by `stop` with a grace, or because its task is cancelled. And its pause."""

from __future__ import annotations

import asyncio
import logging
import threading
import time as real

import pytest

from paceline import App, Concurrency, ConfigError, Queue, Rate, StoreUnavailable, Worker
from paceline.clock import SECOND
from paceline.durations import parse_duration

from .helpers import ORIGIN, add, after, nothing, soon, started, states, takes, working


def until_empty(time, worker: Worker) -> asyncio.Task[float]:
    """Run a worker until nothing is left; the result is the instant at which it returned."""

    async def run() -> float:
        await worker.run(until_empty=True)
        return after(time.now())

    return asyncio.create_task(run())


# until nothing is left


async def test_until_empty_returns_at_once_when_there_is_nothing_to_do(time):
    await asyncio.wait_for(Worker("line", nothing, store=time.store).run(until_empty=True), 5)

    assert time.now() == ORIGIN


async def test_until_empty_waits_for_limits_delays_and_retries_and_returns_at_the_instant_the_last_job_ends(time):
    queue = Queue("line", store=time.store, limits=[Rate(1, per="1m")])

    async def first_attempt_fails(job):
        await time.sleep("2s")
        if job.attempts_made == 1 and job.data == 1:
            raise OSError("once more")

    await add(queue, 2, attempts=2, retry_delay="5s")
    await queue.add("work", delay="10m")
    running = until_empty(time, Worker("line", first_attempt_fails, store=time.store))
    await time.advance("1h")

    assert await soon(running, time) == 602
    assert await started(queue) == [0, 60, 120, 600]


async def test_until_empty_waits_for_what_other_workers_run_and_returns_at_the_instant_they_are_done(time):
    queue = Queue("line", store=time.store)
    await queue.add("work")

    async with working(Worker("line", takes(time, "12s"), store=time.store)):
        await time.advance(0)
        running = until_empty(time, Worker("line", nothing, store=time.store))
        await time.advance("11s")
        assert not running.done()
        await time.advance("10m")

    assert await soon(running, time) == 12


async def test_until_empty_takes_over_what_another_worker_hands_back(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async with working(Worker("line", takes(time, "1h"), store=time.store)):
        await time.advance("5s")
        running = until_empty(time, Worker("line", nothing, store=time.store))
        await time.advance("5s")
    await time.settle()

    assert await soon(running, time) == 10
    assert await states([job]) == ["completed"]


async def test_until_empty_looks_at_all_queues_of_the_worker(time):
    queues = [Queue(name, store=time.store) for name in ("a", "b")]
    await queues[0].add("work")
    await queues[1].add("work", delay="1m")
    running = until_empty(time, Worker(["a", "b"], nothing, store=time.store))
    await time.advance("1h")

    assert await soon(running, time) == 60


async def test_until_empty_does_not_give_up_on_a_paused_queue(time):
    queue = Queue("line", store=time.store)
    await queue.add("work")
    await queue.pause()
    running = until_empty(time, Worker("line", nothing, store=time.store))
    await time.advance("1h")
    assert not running.done()
    await queue.resume()

    assert await soon(running, time) == 3600


# stop


async def test_stop_waits_for_the_handlers_that_run_and_starts_nothing_more(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)
    worker = Worker("line", takes(time, "10s"), store=time.store, concurrency=2)
    running = asyncio.create_task(worker.run())
    await time.advance("4s")
    stopping = asyncio.create_task(worker.stop())

    await time.advance("5.999999s")
    assert not stopping.done()
    await time.advance("1us")

    await soon(stopping, time)
    await soon(running, time)
    assert await states(jobs) == ["completed", "completed", "waiting"]
    assert (await jobs[2].refresh()).attempts_made == 0


async def test_stop_hands_back_what_still_runs_after_the_grace_without_using_an_attempt(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 2)
    seen = []

    async def handler(job):
        seen.append((job.data, job.attempts_made))
        await time.sleep("1h")

    worker = Worker("line", handler, store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    stopping = asyncio.create_task(worker.stop(grace="3s"))
    await time.advance("2.999999s")
    assert await states(jobs) == ["active", "waiting"]
    await time.advance("1us")

    await soon(stopping, time)
    await soon(running, time)
    assert await states(jobs) == ["waiting", "waiting"]
    assert (jobs[0].attempts_made, jobs[0].crashes, jobs[0].error) == (0, 0, None)

    async with working(Worker("line", handler, store=time.store)):
        await time.advance(0)
    # Back in its old place, and still in its first attempt.
    assert seen == [(0, 1), (0, 1)]


@pytest.mark.parametrize(("given", "grace"), [({}, "25s"), ({"grace": "3s"}, "3s"), ({"grace": 0}, 0)], ids=str)
@pytest.mark.parametrize("workers", [1, 3])
async def test_a_stop_without_a_grace_gives_that_of_the_worker(time, given, grace, workers):
    app = App(time.store)

    @app.task
    async def endless() -> None:
        await time.sleep("1h")

    jobs = [await endless.enqueue() for _ in range(workers)]
    worker = app.worker(concurrency=1, workers=workers, **given)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    stopping = asyncio.create_task(worker.stop())
    if grace:
        await time.advance(parse_duration(grace, option="grace") / SECOND - 0.000001)
        assert await states(jobs) == ["active"] * workers
        await time.advance("1us")

    await soon(stopping, time)
    await soon(running, time)
    assert await states(jobs) == ["waiting"] * workers
    assert worker.grace_exceeded


async def test_a_grace_that_stop_names_wins(time):
    job, *_ = await add(Queue("line", store=time.store), 1)
    worker = Worker("line", takes(time, "1h"), store=time.store, grace="30m")
    running = asyncio.create_task(worker.run())
    await time.advance("1s")

    await soon(asyncio.create_task(worker.stop(grace=0)), time)

    await soon(running, time)
    assert await states([job]) == ["waiting"]


async def test_leaving_the_block_of_a_worker_gives_handlers_its_grace(real_store):
    queue = Queue("line", store=real_store)
    job = await queue.add("work")
    begun, seen = asyncio.Event(), []

    async def endless(job):
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    began = real.monotonic()
    async with Worker("line", endless, store=real_store, grace="50ms"):
        await asyncio.wait_for(begun.wait(), 10)

    assert seen == ["cancelled"]
    assert real.monotonic() - began < 20
    assert await states([job]) == ["waiting"]


async def test_stop_returns_when_a_cancelled_handler_has_cleaned_up(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    cleaned = []

    async def tidy(job):
        try:
            await time.sleep("1h")
        finally:
            await time.sleep("4s")
            cleaned.append(after(time.now()))

    worker = Worker("line", tidy, store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    stopping = asyncio.create_task(worker.stop(grace=0))
    await time.advance("3s")
    assert not stopping.done()
    assert await states([job]) == ["active"]
    await time.advance("1s")

    await soon(stopping, time)
    await soon(running, time)
    assert cleaned == [5]
    assert await states([job]) == ["waiting"]


async def test_a_handler_that_ends_well_although_it_was_stopped_has_completed_its_job(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async def saves_what_it_has(job):
        try:
            await time.sleep("1h")
        except asyncio.CancelledError:
            return "half"

    async with working(Worker("line", saves_what_it_has, store=time.store)):
        await time.advance("1s")

    assert await job.result() == "half"


async def test_a_job_handed_back_frees_its_slots_and_another_worker_starts_it_at_that_instant(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(1)])
    job = await queue.add("work")

    async with working(Worker("line", takes(time, "3s"), store=time.store)):
        await time.advance("1s")
        async with working(other := Worker("line", takes(time, "3s"), store=time.store)):
            await time.advance("1s")
            assert await started(queue) == [0]
            other.pause()
    async with working(Worker("line", takes(time, "3s"), store=time.store)):
        await time.advance("5s")

    assert await started(queue) == [0, 2]
    assert await states([job]) == ["completed"]


class NeverEnds:
    """A handler that takes long and then takes for ever to clean up."""

    def __init__(self, time):
        self._time = time

    async def __call__(self, job):
        try:
            await self._time.sleep("1h")
        finally:
            await self._time.sleep("3h")


@pytest.fixture
def short_clean_up(monkeypatch):
    """Cancelled handlers get some real time to clean up before their jobs are handed back: here less of it."""
    monkeypatch.setattr("paceline.lifecycle.slots.CLEAN_UP", 0.1)


async def stop_returns(time, worker: Worker, *, grace: str) -> bool:
    """Run a worker for five seconds and stop it: whether that came to an end long before its handlers do."""
    running = asyncio.create_task(worker.run())
    await time.advance("5s")
    stopping = asyncio.create_task(worker.stop(grace=grace))
    await time.advance("1m")
    _, waiting = await asyncio.wait([running, stopping], timeout=4)
    await time.advance("4h")
    await asyncio.gather(running, stopping)
    return not waiting


@pytest.mark.usefixtures("short_clean_up")
@pytest.mark.parametrize("grace", ["0s", "10s"])
async def test_stop_returns_although_a_handler_takes_for_ever_to_clean_up_and_its_job_is_handed_back(time, grace):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    assert await stop_returns(time, Worker("line", NeverEnds(time), store=time.store), grace=grace)
    assert (await states([job]), job.attempts_made) == (["waiting"], 0)


@pytest.mark.usefixtures("short_clean_up")
async def test_stop_returns_although_a_handler_that_timed_out_takes_for_ever_to_clean_up(time):
    queue = Queue("line", store=time.store)
    await queue.add("work", timeout="1s")

    assert await stop_returns(time, Worker("line", NeverEnds(time), store=time.store), grace="10s")


@pytest.mark.usefixtures("short_clean_up")
async def test_stop_returns_although_a_thread_that_timed_out_goes_on(time):
    queue = Queue("line", store=time.store)
    await queue.add("work", timeout="1s")
    may_end = threading.Event()

    def stuck(job):
        may_end.wait(60)

    try:
        assert await stop_returns(time, Worker("line", stuck, store=time.store), grace="10s")
    finally:
        may_end.set()


async def test_stop_of_an_idle_worker_returns_at_once_and_stop_of_a_stopped_one_too(time):
    worker = Worker("line", nothing, store=time.store)
    await worker.stop()
    running = asyncio.create_task(worker.run())
    await time.advance("1s")

    await asyncio.wait_for(asyncio.gather(worker.stop(), worker.stop()), 5)
    await asyncio.wait_for(running, 5)
    await asyncio.wait_for(worker.stop(), 5)

    assert after(time.now()) == 1


async def test_stop_is_not_forgotten_when_it_comes_before_the_first_step_of_run(time):
    worker = Worker("line", nothing, store=time.store)
    running = asyncio.create_task(worker.run())
    await worker.stop()
    await time.settle()

    try:
        assert running.done()
    finally:
        await worker.stop()
        await running


async def test_stop_is_not_forgotten_when_it_comes_while_the_store_is_still_being_opened(time, monkeypatch):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async def takes_its_time(within=None):
        await time.sleep("5s")

    monkeypatch.setattr(time.store, "open", takes_its_time)
    worker = Worker("line", nothing, store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    stopping = asyncio.create_task(worker.stop())
    await time.advance("1m")

    try:
        assert running.done()
        assert await states([job]) == ["waiting"]
    finally:
        await asyncio.gather(worker.stop(), running, stopping)


async def test_leaving_async_with_waits_for_the_handlers(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    worker = Worker("line", takes(time, "3s"), store=time.store)

    async def scope():
        async with worker:
            await time.sleep("1s")
        return after(time.now())

    leaving = asyncio.create_task(scope())
    await time.advance("1m")

    assert await soon(leaving, time) == 3
    assert await states([job]) == ["completed"]


# a cancelled run()


async def test_a_worker_stops_when_the_task_of_run_is_cancelled_and_hands_its_job_back(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 2)
    stopped = []

    async def handler(job):
        try:
            await time.sleep("1h")
        finally:
            stopped.append(job.data)

    worker = Worker("line", handler, store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped == [0]
    assert await states(jobs) == ["waiting", "waiting"]
    assert [job.attempts_made for job in jobs] == [0, 0]
    assert await time.store.workers() == []


async def test_a_worker_whose_run_was_cancelled_can_run_again(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    worker = Worker("line", takes(time, "10s"), store=time.store)
    running = asyncio.create_task(worker.run())
    await time.advance("1s")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    again = until_empty(time, worker)
    await time.advance("1m")

    assert await soon(again, time) == 11
    assert await states([job]) == ["completed"]


# running


async def test_run_twice_at_the_same_time_is_an_error_and_one_after_the_other_is_not(time):
    queue = Queue("line", store=time.store)
    worker = Worker("line", nothing, store=time.store)

    async with working(worker):
        with pytest.raises(ConfigError, match="runs already"):
            await worker.run()
        await queue.add("work")
        await time.advance(0)
    job = await queue.add("work")
    await worker.run(until_empty=True)

    assert await states([job]) == ["completed"]
    assert await started(queue) == [0, 0]


async def test_a_store_that_fails_for_a_while_costs_no_job_and_no_result(time, monkeypatch, caplog):
    queue = Queue("line", store=time.store)
    broken = False
    ran = []

    def breakable(call):
        async def through(*args):
            if broken:
                raise StoreUnavailable("the store is away")
            return await call(*args)

        return through

    for name in ("claim", "finish"):
        monkeypatch.setattr(time.store, name, breakable(getattr(time.store, name)))

    async def handler(job):
        ran.append(job.data)
        await time.sleep("5s")
        return job.data

    jobs = await add(queue, 3)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("4s")
        broken = True
        await time.advance("10s")
        broken = False
        await time.advance("1m")

    assert ran == [0, 1, 2]
    assert [await job.result() for job in jobs] == [0, 1, 2]
    assert "the store is away" in caplog.text
    assert all(record.levelno >= logging.WARNING for record in caplog.records if "away" in record.getMessage())


# pause


async def test_a_paused_worker_starts_nothing_until_it_is_resumed_and_what_runs_goes_on(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)
    worker = Worker("line", takes(time, "2s"), store=time.store)

    async with working(worker):
        await time.advance("1s")
        worker.pause()
        await time.advance("9s")
        assert await states(jobs) == ["completed", "waiting", "waiting"]
        worker.resume()
        await time.advance("10s")

    assert await started(queue) == [0, 10, 12]


async def test_a_pause_is_local_to_its_worker_and_resume_without_pause_is_harmless(time):
    queue = Queue("line", store=time.store)
    paused, other = (Worker("line", takes(time, "1s"), store=time.store) for _ in range(2))

    async with working(paused, other):
        other.resume()
        paused.pause()
        await add(queue, 3)
        await time.advance("10s")

    assert await started(queue) == [0, 1, 2]


async def test_a_store_that_closes_waits_for_no_poll_of_its_sleepers(real_store, monkeypatch):
    monkeypatch.setattr("paceline.stores.postgres.listening.PATIENCE", 60)
    monkeypatch.setattr("paceline.stores.sqlite.listening.POLL_EVERY", 60)
    before = set(threading.enumerate())
    async with working(worker := Worker("line", nothing, store=real_store)):
        await asyncio.wait_for(worker._listens.wait(), 5)
        await asyncio.sleep(0.1)

    await real_store.close()

    left = set(threading.enumerate()) - before
    assert [each.name for each in left if each.name.startswith("paceline-ear")] == []
