"""Plain handlers in threads, and handlers in processes of their own (real time where threads and children need it)."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import threading
from pathlib import Path

import pytest

from paceline import ConfigError, JobCancelled, JobFailed, LeaseLost, Queue, Worker, current_job, open_store

from .helpers import add, after, eventually, soon, started, states, working


@pytest.fixture
def store():
    """A store in real time."""
    return open_store("memory://")


# threads


async def test_plain_handlers_run_in_threads_at_the_same_time(store):
    queue = Queue("line", store=store)
    together = threading.Barrier(4)

    def handler(job):
        together.wait(10)
        return threading.current_thread() is not threading.main_thread()

    jobs = await add(queue, 4)
    async with Worker("line", handler, store=store, concurrency=4):
        assert [await job.result(timeout=10) for job in jobs] == [True] * 4


async def test_a_thread_that_blocks_does_not_block_the_other_slots(store):
    queue = Queue("line", store=store)
    may_end = threading.Event()

    def handler(job):
        if job.data == 0:
            assert may_end.wait(10)
        return job.data

    jobs = await add(queue, 3)
    async with Worker("line", handler, store=store, concurrency=2):
        assert [await job.result(timeout=10) for job in jobs[1:]] == [1, 2]
        assert await states(jobs[:1]) == ["active"]
        may_end.set()
        assert await jobs[0].result(timeout=10) == 0


async def test_current_job_is_known_in_threads_and_is_each_threads_own(store):
    queue = Queue("line", store=store)
    together = threading.Barrier(3)

    def handler(job):
        together.wait(10)
        return current_job().data

    jobs = await add(queue, 3)
    async with Worker("line", handler, store=store, concurrency=3):
        assert [await job.result(timeout=10) for job in jobs] == [0, 1, 2]


async def test_progress_sync_and_log_sync_write_from_a_thread(store):
    queue = Queue("line", store=store)
    job = await queue.add("work")
    wrote, may_end = threading.Event(), threading.Event()

    def handler(job):
        job.progress_sync(30, "in a thread")
        job.log_sync("hello")
        wrote.set()
        assert may_end.wait(10)

    async with Worker("line", handler, store=store):
        assert await asyncio.to_thread(wrote.wait, 10)
        await job.refresh()
        assert (float(job.progress), job.progress.message, job.logs) == (30, "in a thread", ("hello",))
        may_end.set()
        await job.result(timeout=10)


async def test_progress_sync_of_a_lost_lease_raises_lease_lost(store):
    queue = Queue("line", store=store)
    await queue.add("work")
    began, gone = threading.Event(), threading.Event()
    caught: asyncio.Queue[BaseException] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def handler(job):
        began.set()
        assert gone.wait(10)
        with pytest.raises(LeaseLost) as lost:
            job.progress_sync(50)
        loop.call_soon_threadsafe(caught.put_nowait, lost.value)

    async with Worker("line", handler, store=store):
        assert await asyncio.to_thread(began.wait, 10)
        await queue.obliterate(force=True)
        gone.set()
        assert isinstance(await asyncio.wait_for(caught.get(), 10), LeaseLost)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(2), StopIteration(3), KeyError("k")], ids=repr)
async def test_whatever_a_thread_raises_fails_its_job_with_type_and_text_and_frees_the_slot(time, error):
    queue = Queue("line", store=time.store)

    def handler(job):
        if job.data == 0:
            raise error

    jobs = await add(queue, 2)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1s")

        assert await states(jobs) == ["failed", "completed"]
        assert jobs[0].error.startswith(type(error).__name__)


async def test_a_thread_that_timed_out_keeps_its_slot_until_it_ends_and_has_failed_then(time):
    queue = Queue("line", store=time.store)
    first, second = await queue.add("work", timeout="1s"), await queue.add("work", "quick")
    may_end = threading.Event()

    def handler(job):
        if job.data != "quick":
            assert may_end.wait(10)
        return "done"

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("5s")
        assert await states([first, second]) == ["active", "waiting"]
        may_end.set()
        with pytest.raises(JobFailed, match="TimeoutError: timed out after 1s"):
            await asyncio.wait_for(first.result(), 10)
        assert await asyncio.wait_for(second.result(), 10) == "done"

    assert first.result_value is None
    assert await started(queue) == [0, 5]


@pytest.mark.parametrize("why", ["timeout", "cancel", "stop", "lost"])
async def test_a_thread_sees_in_job_cancelled_that_it_is_to_end(store, why):
    queue = Queue("line", store=store)
    began, ended = threading.Event(), threading.Event()

    def handler(job):
        began.set()
        while not current_job().cancelled:
            ended.wait(0.005)
        ended.set()

    job = await queue.add("work", timeout="50ms" if why == "timeout" else None)
    worker = Worker("line", handler, store=store, lease="300ms")
    async with worker:
        assert await asyncio.to_thread(began.wait, 10)
        if why == "cancel":
            await job.cancel()
        if why == "lost":
            await queue.obliterate(force=True)
        if why == "stop":
            await worker.stop(grace="50ms")
        assert await asyncio.to_thread(ended.wait, 10)


async def test_a_thread_that_reads_its_job_anew_still_sees_that_it_is_to_end(store):
    queue = Queue("line", store=store)
    seen = []

    async def handler(job):
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await job.refresh()
            seen.append(job.cancelled)
            raise

    job = await queue.add("work", timeout="20ms")
    async with Worker("line", handler, store=store):
        with pytest.raises(JobFailed):
            await job.result(timeout=10)

    assert seen == [True]


class AsyncCallable:
    async def __call__(self, job):
        return threading.current_thread() is threading.main_thread()


async def in_loop(job, extra=None):
    return threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(
    "handler",
    [in_loop, functools.partial(in_loop, extra=1), AsyncCallable(), AsyncCallable().__call__],
    ids=["function", "partial", "object", "method"],
)
async def test_async_handlers_of_every_form_run_in_the_event_loop(time, handler):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async with working(Worker("line", handler, store=time.store)):
        assert await soon(asyncio.ensure_future(job.result()), time) is True


async def test_a_plain_function_that_hands_over_a_coroutine_has_it_awaited(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async def inner(job):
        await time.sleep("2s")
        return "awaited"

    async with working(Worker("line", lambda job: inner(job), store=time.store)):
        await time.advance("5s")

    assert await job.result() == "awaited"
    assert after(job.finished_at) == 2


# processes


@pytest.fixture
def handlers(monkeypatch):
    """The module of handlers, importable by name for the children too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("handlers_in_processes")


def in_process(store, handler, **options) -> Worker:
    return Worker("line", handler, store=store, isolation="process", **options)


async def pid_of(job) -> int:
    """The process that runs a handler which logs it first."""

    async def told():
        return (await job.refresh()).logs

    await eventually(told, within=30)
    return int(job.logs[0])


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_handler_in_a_process_of_its_own_gets_its_job_and_returns_its_result(store, handlers):
    queue = Queue("line", store=store)
    plain = await queue.add("work", {"number": 1}, group="a")
    async with in_process(store, handlers.describe):
        result = await plain.result(timeout=30)
    job = await queue.add("work", [2])
    async with in_process(store, handlers.describe_async):
        other = await job.result(timeout=30)

    assert result | {"pid": 0} == {"pid": 0, "data": {"number": 1}, "current": True, "attempt": 1, "group": "a"}
    assert other | {"pid": 0} == {"pid": 0, "data": [2], "current": True, "attempt": 1, "group": None}
    assert os.getpid() not in (result["pid"], other["pid"])
    # Nothing is left behind when the worker stopped.
    assert not exists(result["pid"])
    assert not exists(other["pid"])


@pytest.mark.parametrize("name", ["note", "note_async"])
async def test_progress_and_log_lines_of_a_child_reach_the_store(store, handlers, name):
    queue = Queue("line", store=store)
    job = await queue.add("work")

    async with in_process(store, getattr(handlers, name)):
        assert await job.result(timeout=30) == "noted"

    await job.refresh()
    assert (job.progress.message, job.logs) == ("half way", ("from the child",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fail", "ValueError: not good enough"),
        ("fail_strangely", "StrangeError: very odd (7)"),
        ("exits", "SystemExit: 3"),
    ],
)
async def test_errors_of_a_child_read_as_they_do_in_a_thread(store, handlers, name, text):
    queue = Queue("line", store=store)
    errors = []
    for isolation in ("thread", "process"):
        job = await queue.add("work")
        async with Worker("line", getattr(handlers, name), store=store, isolation=isolation):
            with pytest.raises(JobFailed):
                await job.result(timeout=30)
        errors.append(job.error)
        assert (job.attempts_made, job.crashes) == (1, 0)

    assert errors[1] == errors[0]
    assert errors[0].endswith(text)


async def test_a_result_of_a_child_that_is_not_json_fails_the_attempt_and_says_so(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work")

    async with in_process(store, handlers.returns_no_json):
        with pytest.raises(JobFailed, match="NotSerializable"):
            await job.result(timeout=30)

    assert (job.attempts_made, job.crashes) == (1, 0)


async def test_a_timeout_kills_the_child_and_uses_an_attempt(store, handlers):
    queue = Queue("line", store=store)

    async with in_process(store, handlers.hang_deaf):
        # A first job, so that the time of the second one does not go by while its process comes up.
        await (await queue.add("work", "quick")).result(timeout=30)
        job = await queue.add("work", timeout="1s")
        pid = await pid_of(job)
        with pytest.raises(JobFailed, match="timed out after 1s"):
            await job.result(timeout=30)
        assert not exists(pid)

    assert (job.attempts_made, job.crashes) == (1, 0)


async def test_cancel_kills_the_child(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work", attempts=3)

    async with in_process(store, handlers.hang_deaf):
        pid = await pid_of(job)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=5)
        assert not exists(pid)

    assert len(await queue.starts()) == 1


async def test_stop_kills_the_child_and_hands_the_job_back_without_an_attempt_or_a_crash(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work")
    worker = in_process(store, handlers.hang)

    async with worker:
        pid = await pid_of(job)
        await worker.stop(grace=0)

    assert not exists(pid)
    assert (await states([job]), job.attempts_made, job.crashes) == (["waiting"], 0, 0)


async def test_a_child_that_dies_counts_as_a_crash_and_not_as_an_attempt(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work", attempts=1)

    async with in_process(store, handlers.dies_twice):
        assert await job.result(timeout=30) == "alive"

    assert (job.attempts_made, job.crashes) == (1, 2)


@pytest.mark.parametrize(("name", "code"), [("dies_always", "9"), ("kills_itself", "-9")])
async def test_the_third_crash_fails_the_job_whatever_attempts_are_left(store, handlers, name, code):
    queue = Queue("line", store=store)
    job = await queue.add("work", attempts=10)

    async with in_process(store, getattr(handlers, name)):
        with pytest.raises(JobFailed, match="crashed"):
            await job.result(timeout=30)

    assert (job.crashes, job.attempts_made) == (3, 0)
    assert f"exit code {code}" in job.error
    assert len(await queue.starts()) == 3


async def test_fail_raised_in_a_child_ends_the_job_for_good(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work", attempts=5)

    async with in_process(store, handlers.says_fail):
        with pytest.raises(JobFailed, match="the account is closed"):
            await job.result(timeout=30)

    assert (job.attempts_made, job.error) == (1, "the account is closed")


async def test_retry_raised_in_a_child_asks_for_another_attempt_at_its_time(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work", attempts=2)

    async def has_run():
        return (await job.refresh()).state not in ("waiting", "active")

    async with in_process(store, handlers.says_retry):
        await eventually(has_run, within=15)

        assert (job.state, job.error) == ("delayed", "not ready yet")
        assert (job.due_at - job.started_at).total_seconds() >= 3600


async def test_a_rate_limit_raised_in_a_child_returns_the_job_without_an_attempt(store, handlers):
    queue = Queue("line", store=store)
    job = await queue.add("work", attempts=1)

    async with in_process(store, handlers.says_rate_limited):
        assert await job.result(timeout=30) == "came back"

    assert job.attempts_made == 1


async def test_functions_that_a_child_cannot_import_are_refused_when_the_worker_is_made(store):
    def local(job):
        return None

    for handler in (lambda job: None, local, functools.partial(in_loop, extra=1), AsyncCallable()):
        with pytest.raises(ConfigError, match="isolation='process'") as refused:
            in_process(store, handler)
        assert refused.value.option == "handler"
        assert "top of a module" in str(refused.value)


def test_a_batch_in_a_process_of_its_own_is_refused(store):
    with pytest.raises(ConfigError, match="batch=2 is wrong"):
        in_process(store, in_loop, batch=2)
