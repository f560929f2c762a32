"""Workers, tasks and limiters on a real server and on real time: threads, loops, wake-ups, cancels, refusals."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from paceline import (
    App,
    Concurrency,
    GroupLimits,
    Job,
    JobCancelled,
    JobFailed,
    Limiter,
    Queue,
    Rate,
    RateLimited,
    Worker,
    current_job,
)
from paceline.stores import open_store

from ..servers.redis import empty_redis, shared_redis


@pytest.fixture
async def app():
    app = App(open_store(empty_redis()))
    yield app
    await app.close()


async def test_a_task_runs_and_its_result_comes_back(app):
    @app.task()
    async def double(number: int) -> int:
        return 2 * number

    async with app.worker():
        jobs = [await double.enqueue(number) for number in range(5)]

        assert [await job.result(timeout=5) for job in jobs] == [0, 2, 4, 6, 8]


async def test_plain_functions_run_in_threads_and_report_from_there(app):
    @app.task()
    def work(number: int) -> int:
        job = current_job()
        job.progress_sync(50, "half way")
        job.log_sync("seen")
        return number

    async with app.worker(concurrency=4):
        job = await work.enqueue(7)

        assert await job.result(timeout=5) == 7
    await job.refresh()
    assert (job.logs, job.progress) == (("seen",), 100)


async def test_jobs_are_added_from_plain_code(app):
    @app.task()
    async def work(number: int) -> int:
        return number

    job = await asyncio.to_thread(work.enqueue_sync, 3)
    async with app.worker():
        assert await job.result(timeout=5) == 3


async def test_a_failed_job_is_tried_again_and_then_fails(app):
    tries = []

    @app.task(attempts=3, retry_delay="20ms")
    async def work() -> None:
        tries.append(time.monotonic())
        raise ValueError("broken")

    async with app.worker():
        job = await work.enqueue()
        with pytest.raises(JobFailed, match="broken"):
            await job.result(timeout=5)

    assert len(tries) == 3
    assert min(second - first for first, second in pairwise(tries)) >= 0.02


async def test_a_running_job_is_cancelled_at_once(app):
    began = asyncio.Event()

    @app.task()
    async def work() -> None:
        began.set()
        await asyncio.sleep(60)

    async with app.worker():
        job = await work.enqueue()
        await asyncio.wait_for(began.wait(), 5)
        asked = time.monotonic()
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=5)

    assert time.monotonic() - asked < 2


async def test_an_outside_refusal_holds_the_limit_for_everybody(app):
    app.limit("service", Concurrency(10), tasks=["call"])
    calls = []

    @app.task()
    async def call(number: int) -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise RateLimited(retry_after=0.5)

    async with app.worker(concurrency=1):
        jobs = [await call.enqueue(number) for number in range(3)]
        for job in jobs:
            await job.result(timeout=5)

    assert len(calls) == 4
    assert calls[1] - calls[0] >= 0.5


async def test_an_idle_worker_starts_a_new_job_within_milliseconds():
    store, other = open_store(empty_redis()), open_store(shared_redis().url)
    queue = Queue("line", store=other)
    lags, added, started = [], [0.0], asyncio.Event()

    async def handler(job: Job[None]) -> None:
        lags.append(time.perf_counter() - added[0])
        started.set()

    async with Worker("line", handler, store=store) as worker:
        for _ in range(30):
            started.clear()
            added[0] = time.perf_counter()
            await queue.add("work", None)
            await asyncio.wait_for(started.wait(), 5)
            await asyncio.sleep(0.005)
        assert worker.insurance_wakeups == 0

    assert sorted(lags)[len(lags) // 2] < 0.1
    await store.close()
    await other.close()


async def test_a_worker_starts_when_the_window_opens_and_not_before():
    store = open_store(empty_redis())
    queue = Queue("line", store=store, limits=[Rate(2, per="300ms")])
    await queue.add_many([("work", None)] * 6)

    async def handler(job: Job[None]) -> None:
        return None

    await Worker("line", handler, store=store, concurrency=5).run(until_empty=True)
    ats = [start.at.timestamp() for start in await queue.starts()]

    assert ats[2] - ats[0] >= 0.2999
    assert ats[4] - ats[2] >= 0.2999
    assert ats[5] - ats[0] < 2
    await store.close()


async def test_group_limits_of_a_worker_hold_for_all_workers():
    url = empty_redis()
    stores = [open_store(url) for _ in range(2)]
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    async def handler(job: Job[None]) -> None:
        group = job.group or ""
        running[group] = running.get(group, 0) + 1
        most[group] = max(most.get(group, 0), running[group])
        await asyncio.sleep(0.01)
        running[group] -= 1

    queue = Queue("line", store=stores[0])
    await queue.add_many([("work", None, {"group": f"g{n % 3}"}) for n in range(45)])
    workers = [
        Worker("line", handler, store=store, concurrency=10, group=GroupLimits(concurrency=2)) for store in stores
    ]
    await asyncio.gather(*(worker.run(until_empty=True) for worker in workers))

    assert (await queue.counts())["completed"] == 45
    assert max(most.values()) == 2
    for store in stores:
        await store.close()


async def test_a_limiter_is_shared_by_processes_and_wakes_who_waits():
    url = empty_redis()
    stores = [open_store(url) for _ in range(3)]
    limiters = [Limiter("service", Concurrency(1), store=store) for store in stores]
    inside, most = [0], [0]

    async def use(limiter: Limiter) -> None:
        for _ in range(10):
            async with limiter.acquire(timeout=20):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                await asyncio.sleep(0.002)
                inside[0] -= 1

    started = time.monotonic()
    await asyncio.gather(*map(use, limiters))

    assert (most[0], inside[0]) == (1, 0)
    assert time.monotonic() - started < 10
    for store in stores:
        await store.close()


async def test_workers_that_know_different_tasks_share_a_queue(app):
    other = App(open_store(shared_redis().url))
    done = []

    @app.task()
    async def old() -> None:
        done.append("old")

    @other.task()
    async def new() -> None:
        done.append("new")

    async with app.worker(), other.worker():
        jobs = []
        for _ in range(5):
            jobs += [await old.enqueue(), await new.enqueue()]
            await asyncio.sleep(0.01)
        for job in jobs:
            await job.result(timeout=5)

    assert (done.count("old"), done.count("new")) == (5, 5)
    await other.close()


async def test_a_store_serves_many_loops_one_after_the_other():
    url = empty_redis()
    store = open_store(url)

    def in_a_loop_of_its_own(number: int) -> dict[str, int]:
        async def work() -> dict[str, int]:
            queue = Queue("line", store=store)
            await queue.add("work", number)
            return await queue.counts()

        return asyncio.run(work())

    for number in range(1, 6):
        assert (await asyncio.to_thread(in_a_loop_of_its_own, number))["waiting"] == number
    await store.close()


async def test_a_worker_that_may_not_start_passes_the_word_on():
    url = empty_redis()
    stores = [open_store(url) for _ in range(3)]
    queue = Queue("line", store=stores[2])
    done: list[str] = []

    def handler_of(name: str):
        async def handler(job: Job[None]) -> None:
            done.append(name)

        return handler

    held = Worker("line", handler_of("held"), store=stores[0], limiter=Rate(1, per="1h"))
    free = Worker("line", handler_of("free"), store=stores[1])
    async with held, free:
        await asyncio.sleep(0.2)
        for _ in range(6):
            job = await queue.add("work", None)
            await job.result(timeout=3)
            await asyncio.sleep(0.02)

    assert done.count("free") >= 5
    for store in stores:
        await store.close()
