"""A store that is away for a while, and limits that vanish: no job fails of it, no end gets lost, nothing leaks."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline import App, ConfigError, Queue, Rate, RateLimited, StoreUnavailable, Worker
from paceline.stores.interface import Finish, Outcome, Store

from .helpers import add, eventually, nothing, states, working


class Outage:
    """Steps of a store that fail while `on`."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.on = False
        self.refused = 0
        for name in names:
            monkeypatch.setattr(store, name, self._breakable(getattr(store, name)))

    def _breakable(self, step: Callable[..., object]) -> Callable[..., object]:
        async def through(*args, **kwargs):
            if self.on:
                self.refused += 1
                raise StoreUnavailable("the store is away")
            return await step(*args, **kwargs)

        return through


async def ended(worker_task: asyncio.Task[None]) -> None:
    await asyncio.wait_for(worker_task, 15)


# refusals from outside


async def test_a_refusal_during_an_outage_is_written_when_the_store_is_back(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    outage = Outage(real_store, monkeypatch, "claim", "finish", "limits")
    ran = []

    async def handler(job):
        ran.append(job.data)
        if len(ran) == 1:
            outage.on = True
            asyncio.get_running_loop().call_later(0.4, setattr, outage, "on", False)
            raise RateLimited(retry_after="100ms")
        return "ok"

    jobs = await add(queue, 2)
    await ended(asyncio.create_task(Worker("line", handler, store=real_store).run(until_empty=True)))

    assert ran == [0, 0, 1]
    assert await states(jobs) == ["completed"] * 2
    assert [(job.attempts_made, job.crashes) for job in jobs] == [(1, 0)] * 2


@pytest.mark.parametrize("named", [None, "service"])
async def test_a_refusal_under_a_limit_that_is_dropped_meanwhile_goes_back_and_ends_nobody(
    real_store, monkeypatch, named
):
    app = App(real_store)
    app.limit("service", Rate(1000, per="1s"), tasks=["work"])
    queue = app.queue("line")
    read = real_store.limits
    ran = []

    async def reads_then_drops():
        found = await read()
        if ran:
            await App(real_store).drop_limit("service")
        return found

    async def handler(job):
        ran.append(job.data)
        if ran.count(job.data) == 1 and job.data == 0:
            raise RateLimited(retry_after="10ms", limit=named)
        return "ok"

    jobs = await add(queue, 4)
    monkeypatch.setattr(real_store, "limits", reads_then_drops)
    await ended(asyncio.create_task(Worker("line", handler, store=real_store, concurrency=4).run(until_empty=True)))

    assert sorted(ran) == [0, 0, 1, 2, 3]
    assert await states(jobs) == ["completed"] * 4
    assert {job.attempts_made for job in jobs} == {1}


# a worker's shared limiter


async def test_a_dropped_limit_of_a_workers_limiter_is_declared_again(real_store):
    app = App(real_store)
    queue = app.queue("line")
    jobs = await add(queue, 12)
    worker = Worker("line", nothing, store=real_store, limiter=app.limiter("shared", Rate(4, per="200ms")))
    running = asyncio.create_task(worker.run(until_empty=True))
    await jobs[0].result(timeout=10)
    await App(real_store).drop_limit("shared")
    await ended(running)

    assert await states(jobs) == ["completed"] * 12
    assert [limit.name for limit in await real_store.limits()] == ["shared"]


async def test_a_worker_whose_limiter_nobody_declares_any_more_waits_and_writes_what_ended(real_store, caplog):
    other = App(real_store)
    other.limit("shared", Rate(100, per="1s"), tasks=["else"])
    queue = other.queue("line")
    app = App(real_store)
    began, may_end = asyncio.Event(), asyncio.Event()

    async def handler(job):
        began.set()
        await may_end.wait()

    job = await queue.add("work")
    worker = Worker("line", handler, store=real_store, limiter=app.limiter("shared"), concurrency=2)
    async with worker:
        await began.wait()
        await other.drop_limit("shared")
        later = await queue.add("work")
        may_end.set()
        await job.result(timeout=10)
        again = App(real_store)
        again.limit("shared", Rate(100, per="1s"), tasks=["else"])
        await again.limit_state("shared")
        await later.result(timeout=10)

    assert "there is no limit 'shared'" in caplog.text


async def test_a_worker_whose_limiter_was_never_declared_says_so_at_once(real_store):
    worker = Worker("line", nothing, store=real_store, limiter=App(real_store).limiter("nowhere"))
    await Queue("line", store=real_store).add("work")

    with pytest.raises(ConfigError, match="nowhere"):
        await asyncio.wait_for(worker.run(), 10)


# ends and claims


async def test_ends_that_come_while_the_answer_of_a_claim_is_lost_are_written_too(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    claim = real_store.claim
    ended_meanwhile = asyncio.Event()
    lost = []
    ran = []

    async def loses_one_answer(ask, ends=()):
        answer = await claim(ask, ends)
        if any(record.data == b"2" for record in answer.jobs) and not lost:
            lost.append(ask.claim_id)
            ended_meanwhile.set()
            await asyncio.sleep(0.05)
            raise StoreUnavailable("the answer is lost")
        return answer

    async def handler(job):
        ran.append(job.data)
        if job.data == 1:
            await ended_meanwhile.wait()
        return job.data

    monkeypatch.setattr(real_store, "claim", loses_one_answer)
    first = await add(queue, 2)
    async with Worker("line", handler, store=real_store, concurrency=2, lease="30s"):
        await first[0].result(timeout=10)
        third = await queue.add("work", 2)
        assert [await job.result(timeout=10) for job in (*first, third)] == [0, 1, 2]

    assert lost
    assert sorted(ran) == [0, 1, 2]


async def test_one_end_that_the_store_refuses_takes_no_other_with_it(real_store, monkeypatch):
    queue = Queue("line", store=real_store)

    def refuses(step, place):
        async def through(*args):
            ends: list[Finish] = args[place] if len(args) > place else []
            if any(end.outcome is Outcome.COMPLETED and end.result == b'"poison"' for end in ends):
                raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
            return await step(*args)

        return through

    monkeypatch.setattr(real_store, "finish", refuses(real_store.finish, 0))
    monkeypatch.setattr(real_store, "claim", refuses(real_store.claim, 1))
    together = asyncio.Barrier(4)

    async def handler(job):
        if job.data < 4:
            await together.wait()
        return "poison" if job.data == 0 else job.data

    jobs = await add(queue, 6)
    await ended(asyncio.create_task(Worker("line", handler, store=real_store, concurrency=4).run(until_empty=True)))

    assert await states(jobs) == ["failed", *["completed"] * 5]
    assert "refused the end of its run" in (jobs[0].error or "")


async def test_an_outage_is_one_line_and_its_end_another(time, monkeypatch, caplog):
    queue = Queue("line", store=time.store)
    outage = Outage(time.store, monkeypatch, "claim", "finish", "extend", "counts")
    caplog.set_level(logging.INFO, "paceline")

    async def handler(job):
        await time.sleep("4s")

    jobs = await add(queue, 3)
    async with working(Worker("line", handler, store=time.store, name="w", lease="1m")):
        await time.advance("3s")
        outage.on = True
        await time.advance("30s")
        outage.on = False
        await time.advance("1m")

    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said[0] == "worker w cannot claim or write; it goes on when the store is back: the store is away"
    assert len(said) == 4
    assert said[1] == "the leases of worker w could not be renewed: the store is away"
    assert {line.split(" after ")[0] for line in said[2:]} == {
        "worker w: the store is back",
        "the leases of worker w are renewed again",
    }
    assert 10 < outage.refused < 60
    assert await states(jobs) == ["completed"] * 3


async def test_an_unexpected_error_is_logged_and_the_worker_goes_on(time, monkeypatch, caplog):
    queue = Queue("line", store=time.store)
    claim = time.store.claim
    met = []

    async def stumbles(*args):
        if len(met) < 2:
            met.append(1)
            raise ZeroDivisionError("nobody expected this")
        return await claim(*args)

    monkeypatch.setattr(time.store, "claim", stumbles)
    job = await queue.add("work")
    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("10s")

    assert await states([job]) == ["completed"]
    assert "unexpected error" in caplog.text


async def test_a_worker_that_meets_the_same_unexpected_error_for_ever_hands_back_and_raises(time, monkeypatch):
    queue = Queue("line", store=time.store)
    claim = time.store.claim
    broken = []

    async def breaks(*args):
        if broken:
            raise ZeroDivisionError("nobody expected this")
        return await claim(*args)

    async def handler(job):
        broken.append(1)
        await time.sleep("1h")

    monkeypatch.setattr(time.store, "claim", breaks)
    job = await queue.add("work")
    worker = Worker("line", handler, store=time.store, concurrency=2)
    running = asyncio.create_task(worker.run())
    await time.advance("5s")
    await queue.add("work")
    await time.advance("1m")

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(running, 10)
    assert (await states([job]), job.attempts_made) == (["waiting"], 0)


# progress and log lines


async def test_progress_and_log_lines_during_an_outage_fail_no_job_and_are_written_later(
    real_store, monkeypatch, caplog
):
    queue = Queue("line", store=real_store)
    outage = Outage(real_store, monkeypatch, "note", "claim", "finish")
    back = asyncio.Event()

    async def handler(job):
        await job.log("before")
        outage.on = True
        await job.progress(10, "ten")
        await job.progress(20, "twenty")
        await job.log("meanwhile")
        outage.on = False
        await back.wait()
        return "done"

    job = await queue.add("work")
    async with Worker("line", handler, store=real_store):

        async def written():
            return (await job.refresh()).logs == ("before", "meanwhile")

        await eventually(written)
        assert (float(job.progress), job.progress.message) == (20, "twenty")
        back.set()
        assert await job.result(timeout=10) == "done"

    kept = [record for record in caplog.records if "are kept until the store takes them" in record.getMessage()]
    assert [record.levelno for record in kept] == [logging.WARNING]


async def test_what_a_handler_reported_last_is_written_before_its_end(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    outage = Outage(real_store, monkeypatch, "note", "claim", "finish")

    async def handler(job):
        outage.on = True
        await job.log("the last word")
        asyncio.get_running_loop().call_later(0.3, setattr, outage, "on", False)
        return "done"

    job = await queue.add("work")
    async with Worker("line", handler, store=real_store):
        assert await job.result(timeout=10) == "done"

    assert (await job.refresh()).logs == ("the last word",)


async def test_progress_sync_and_log_sync_in_a_thread_outlive_an_outage(real_store, monkeypatch):
    queue = Queue("line", store=real_store)
    outage = Outage(real_store, monkeypatch, "note", "claim", "finish")

    def handler(job):
        outage.on = True
        job.progress_sync(50, "half way")
        job.log_sync("from a thread")
        threading.Timer(0.2, setattr, (outage, "on", False)).start()
        return "done"

    job = await queue.add("work")
    async with Worker("line", handler, store=real_store):
        assert await job.result(timeout=10) == "done"

    assert (await job.refresh()).logs == ("from a thread",)


async def test_notes_of_a_child_outlive_an_outage(real_store, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    handlers = importlib.import_module("handlers_in_processes")
    queue = Queue("line", store=real_store)
    note = real_store.note
    tries = []

    async def fails_twice(notes):
        tries.append(len(notes))
        if len(tries) <= 2:
            raise StoreUnavailable("the store is away")
        return await note(notes)

    monkeypatch.setattr(real_store, "note", fails_twice)
    job = await queue.add("work")
    async with Worker("line", handlers.note, store=real_store, isolation="process"):
        assert await job.result(timeout=30) == "noted"

    assert (await job.refresh()).logs == ("from the child",)
