"""Whatever ends a program: ends that happened are written, the rest is handed back, and nothing fails that did not."""

from __future__ import annotations

import asyncio
import random
import time as real
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from paceline import Queue, StoreUnavailable, Worker
from paceline.stores.interface import Store

from .helpers import add, nothing, states


def slow_answers(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """The first answer of a step that had something to do takes long: (it was done, it may arrive)."""
    done, arrives = asyncio.Event(), asyncio.Event()
    step = getattr(store, name)

    async def slow(*args, **kwargs):
        answer = await step(*args, **kwargs)
        if not done.is_set() and (name != "claim" or answer.jobs):
            done.set()
            await arrives.wait()
        return answer

    monkeypatch.setattr(store, name, slow)
    return done, arrives


async def cancelled(running: asyncio.Task[object]) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


# a run that is cancelled


async def test_cancelled_again_and_again_no_job_is_left_active_and_none_that_returned_runs_again(real_store):
    queue = Queue("line", store=real_store)
    returned: Counter[str] = Counter()
    chance = random.Random()

    async def handler(job):
        await asyncio.sleep(0.001)
        returned[job.id] += 1

    jobs = await add(queue, 300)
    for _ in range(25):
        running = asyncio.create_task(Worker("line", handler, store=real_store, concurrency=5).run())
        await asyncio.sleep(0.002 + chance.random() * 0.02)
        await cancelled(running)
    left = (await queue.counts())["active"]
    await Worker("line", handler, store=real_store, concurrency=20).run(until_empty=True)

    assert left == 0
    assert returned == Counter(job.id for job in jobs)
    assert {job.crashes for job in await queue.list(limit=1000)} == {0}


async def test_jobs_of_a_claim_whose_answer_never_came_are_handed_back(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    jobs = await add(queue, 3)
    done, _ = slow_answers(real_store, monkeypatch, "claim")
    running = asyncio.create_task(Worker("line", nothing, store=real_store, concurrency=2).run())
    await done.wait()
    await cancelled(running)

    assert await states(jobs) == ["waiting"] * 3
    assert [(job.attempts_made, job.crashes) for job in jobs] == [(0, 0)] * 3
    assert await real_store.workers() == []


@pytest.mark.parametrize("step", ["claim", "finish"])
async def test_ends_whose_writing_was_cancelled_are_written_once_more(real_store, monkeypatch, step):
    queue = Queue("line", store=real_store)
    write = getattr(real_store, step)
    began, may_end, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ran = []

    async def handler(job):
        ran.append(job.data)
        began.set()
        await may_end.wait()
        return job.data

    async def never_arrives(*args):
        ends = args[0] if step == "finish" else args[1]
        if ends and not asked.is_set():
            asked.set()
            await asyncio.sleep(60)
        return await write(*args)

    jobs = await add(queue, 1)
    worker = Worker("line", handler, store=real_store)
    monkeypatch.setattr(real_store, step, never_arrives)
    running = asyncio.create_task(worker.run())
    await began.wait()
    if step == "finish":
        worker.pause()  # no claim carries the end
    may_end.set()
    await asyncio.wait_for(asked.wait(), 10)
    await cancelled(running)

    assert await states(jobs) == ["completed"]
    assert ran == [0]


async def test_a_run_that_is_cancelled_while_the_store_is_away_ends_within_seconds(real_store, monkeypatch, caplog):
    queue = Queue("line", store=real_store)
    await add(queue, 1)
    began = asyncio.Event()

    async def handler(job):
        began.set()
        await asyncio.sleep(60)

    async def away(*args, **kwargs):
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr("paceline.worker.LEAVING", 0.3)
    running = asyncio.create_task(Worker("line", handler, store=real_store, lease="1m").run())
    await began.wait()
    for name in ("claim", "finish", "unregister"):
        monkeypatch.setattr(real_store, name, away)
    since = real.monotonic()
    await cancelled(running)

    assert real.monotonic() - since < 5
    assert "they run again" in caplog.text


async def test_a_worker_goes_on_after_its_run_was_cancelled_by_a_timeout_or_by_a_group_that_failed(real_store):
    queue = Queue("line", store=real_store)

    async def handler(job):
        await asyncio.sleep(job.data)
        return "done"

    job = await queue.add("work", 0.6)
    worker = Worker("line", handler, store=real_store)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await worker.run()

    async def fails():
        await asyncio.sleep(0.2)
        raise RuntimeError("something else")

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            group.create_task(fails())
    assert (await states([job]), job.attempts_made, job.crashes) == (["waiting"], 0, 0)

    async with worker:
        assert await job.result(timeout=10) == "done"
    assert job.attempts_made == 1


async def test_stop_while_the_store_is_away_writes_what_ended_when_it_is_back(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    jobs = await add(queue, 2)
    may_end, began = asyncio.Event(), asyncio.Event()
    ran = []

    async def handler(job):
        ran.append(job.data)
        if len(ran) == 2:
            began.set()
        await may_end.wait()

    async def away(*args, **kwargs):
        raise StoreUnavailable("the store is away")

    worker = Worker("line", handler, store=real_store, concurrency=2)
    running = asyncio.create_task(worker.run())
    await began.wait()
    for name in ("claim", "finish"):
        monkeypatch.setattr(real_store, name, away)
    stopping = asyncio.create_task(worker.stop())
    may_end.set()
    await asyncio.sleep(0.3)
    assert not stopping.done()
    monkeypatch.undo()
    await asyncio.wait_for(asyncio.gather(running, stopping), 10)

    assert await states(jobs) == ["completed"] * 2
    assert sorted(ran) == [0, 1]


# the event loop ends


async def in_a_loop_of_its_own(main: Callable[[], Awaitable[object]]) -> BaseException | None:
    """Run a program in another thread, as `asyncio.run` does; gives what it raised."""

    def program() -> BaseException | None:
        try:
            asyncio.run(main())  # type: ignore[arg-type]
        except BaseException as error:
            return error
        return None

    return await asyncio.to_thread(program)


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_a_loop_that_ends_fails_no_job_that_runs(opens, real_store, how):
    queue = Queue("line", store=real_store)
    jobs = await add(queue, 3)
    there, all_run, running = opens(), asyncio.Event(), []

    async def handler(job):
        running.append(job.data)
        if len(running) == 3:
            all_run.set()
        await asyncio.sleep(60)

    async def main():
        task = asyncio.create_task(Worker("line", handler, store=there, concurrency=5).run())
        await all_run.wait()
        if how == "raises":
            raise RuntimeError("a bug in main")
        return task

    ended = await in_a_loop_of_its_own(main)

    assert isinstance(ended, RuntimeError) == (how == "raises")
    assert await states(jobs) == ["waiting"] * 3
    assert [(job.attempts_made, job.crashes, job.error) for job in jobs] == [(0, 0, None)] * 3


async def test_a_loop_that_ends_while_a_claim_is_on_its_way_leaves_no_job_active(opens, real_store):
    queue = Queue("line", store=real_store)
    chance = random.Random()
    returned: Counter[str] = Counter()
    there = opens()

    async def handler(job):
        await asyncio.sleep(0.001)
        returned[job.id] += 1

    async def main():
        task = asyncio.create_task(Worker("line", handler, store=there, concurrency=5).run())
        await asyncio.sleep(0.02 + chance.random() * 0.02)
        return task

    jobs = await add(queue, 200)
    for _ in range(10):
        assert await in_a_loop_of_its_own(main) is None
    left = (await queue.counts())["active"]
    await Worker("line", handler, store=real_store, concurrency=20).run(until_empty=True)

    assert left == 0
    assert returned == Counter(job.id for job in jobs)


async def test_a_handler_that_cancels_itself_or_awaits_what_it_cancelled_has_failed(real_store):
    queue = Queue("line", store=real_store)

    async def cancels_itself(job):
        if job.data == 1:
            this = asyncio.current_task()
            assert this is not None
            this.cancel()
            await asyncio.sleep(1)
        if job.data == 0:
            other = asyncio.ensure_future(asyncio.sleep(1))
            other.cancel()
            await other

    jobs = await add(queue, 3)
    await Worker("line", cancels_itself, store=real_store).run(until_empty=True)

    assert await states(jobs) == ["failed", "failed", "completed"]
    assert "CancelledError" in (jobs[0].error or "")
    assert [job.attempts_made for job in jobs] == [1, 1, 1]


async def test_a_job_that_ends_its_program_through_a_task_of_its_own_fails_as_crashed_the_third_time(opens, real_store):
    queue = Queue("line", store=real_store)
    job = await queue.add("work", attempts=10)

    async def leave():
        raise SystemExit(3)

    async def handler(job):
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())

    async def main():
        await Worker("line", handler, store=there).run()

    there = opens()
    ended = [await in_a_loop_of_its_own(main) for _ in range(3)]

    assert [type(error) for error in ended] == [SystemExit] * 3
    assert (await states([job]), job.crashes, job.attempts_made) == (["failed"], 3, 0)
    assert "crashed" in (job.error or "")


async def test_a_worker_runs_in_one_loop_after_the_other(opens):
    store = opens()
    worker = Worker("line", nothing, store=store)

    async def main():
        queue = Queue("line", store=store)
        async with worker:
            await (await queue.add("work")).result(timeout=10)

    assert [await in_a_loop_of_its_own(main) for _ in range(3)] == [None] * 3


async def test_a_worker_whose_start_failed_can_be_started_again(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    worker = Worker("line", nothing, store=real_store)

    async def away(*args):
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(real_store, "register", away)
    with pytest.raises(StoreUnavailable):
        await worker.run()
    with pytest.raises(StoreUnavailable):
        await worker.__aenter__()
    monkeypatch.undo()

    async with worker:
        await (await queue.add("work")).result(timeout=10)
