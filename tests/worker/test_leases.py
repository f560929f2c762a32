"""Leases: kept while a handler runs, lost when its worker dies, fenced against those who come back (design 2.10)."""

from __future__ import annotations

import asyncio
import time as real
from threading import Thread

import pytest

from paceline import Concurrency, GroupLimits, LeaseLost, Queue, StoreUnavailable, Worker, open_store
from paceline.stores.interface import Ask, Extended

from .helpers import add, after, nothing, started, states, takes, working


async def die_with(store, queue: Queue, slots: int = 1, *, lease: str = "30s") -> list[str]:
    """A worker claims jobs and is never heard of again."""
    micros = int(lease.removesuffix("s")) * 1_000_000
    claim = await store.claim(Ask(queues=(queue.name,), slots=slots, worker="dead", lease=micros))
    return [record.id for record in claim.jobs]


class CutOff:
    """A handle on a store whose heartbeats do not arrive while `off` is true."""

    def __init__(self, store):
        self._store = store
        self.off = True

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def extend(self, worker, leases, lease):
        return Extended([], []) if self.off else await self._store.extend(worker, leases, lease)


# a worker that lives


@pytest.mark.parametrize("lease", ["30s", "1s", "300ms"])
async def test_a_handler_longer_than_its_lease_keeps_it(time, lease):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async with working(Worker("line", takes(time, "100s"), store=time.store, lease=lease)):
        await time.advance(0)
        async with working(Worker("line", nothing, store=time.store)):
            await time.advance("2m")

    assert await started(queue) == [0]
    assert (await states([job]), job.crashes, job.attempts_made) == (["completed"], 0, 1)


async def test_a_job_that_is_handed_back_leaves_no_lease_that_could_end(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")

    async with working(Worker("line", takes(time, "1h"), store=time.store)):
        await time.advance("1s")
    await queue.pause()
    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("5m")

    assert (await states([job]), job.crashes) == (["waiting"], 0)


async def test_a_heartbeat_that_fails_once_is_tried_again_before_the_lease_ends(time, monkeypatch):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    extend = time.store.extend
    failed = []

    async def fails_once(*args):
        if not failed:
            failed.append(after(time.now()))
            raise StoreUnavailable("a hiccup")
        return await extend(*args)

    monkeypatch.setattr(time.store, "extend", fails_once)
    async with working(Worker("line", takes(time, "5m"), store=time.store, lease="30s")):
        await time.advance("1s")
        async with working(Worker("line", takes(time, "5m"), store=time.store)):
            await time.advance("10m")

    assert failed == [10]
    assert await started(queue) == [0]
    assert (await states([job]), job.crashes) == (["completed"], 0)


# a worker that dies


async def test_the_job_of_a_dead_worker_starts_again_at_the_very_end_of_its_lease(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", attempts=1)
    seen = []

    async def handler(job):
        seen.append((after(time.now()), job.attempts_made, job.crashes))

    await time.advance("2s")
    assert await die_with(time.store, queue, lease="30s") == [job.id]
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("29.999999s")
        assert await states([job]) == ["active"]
        await time.advance("1us")

    # The crash is counted, and it is not an attempt: the one attempt of the job is the run that came after it.
    assert seen == [(32, 1, 1)]
    assert (await states([job]), job.attempts_made, job.crashes) == (["completed"], 1, 1)


async def test_a_job_that_kills_its_worker_three_times_fails_as_crashed_and_has_used_no_attempt(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", attempts=10)
    for _ in range(3):
        assert await die_with(time.store, queue, lease="10s") == [job.id]
        await time.advance("10s")
    ran = []

    async def handler(job):
        ran.append(job.id)

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1m")

    assert (await states([job]), job.crashes, job.attempts_made, ran) == (["failed"], 3, 0, [])
    assert "crashed" in job.error


async def test_two_crashes_and_two_failed_attempts_are_counted_apart(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", attempts=3)
    for _ in range(2):
        await die_with(time.store, queue, lease="10s")
        await time.advance("10s")

    async def third_time_lucky(job):
        if job.attempts_made < 3:
            raise OSError("down")
        return "done"

    async with working(Worker("line", third_time_lucky, store=time.store)):
        await time.advance("1m")

    assert await job.result() == "done"
    assert (job.attempts_made, job.crashes) == (3, 2)


async def test_the_slots_of_a_dead_worker_come_back_at_the_end_of_its_lease_and_not_before(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(2)])
    await add(queue, 4)
    await die_with(time.store, queue, 2, lease="20s")

    async with working(Worker("line", nothing, store=time.store, concurrency=4)):
        await time.advance("1m")

    # The two that died are first in line again.
    assert await started(queue) == [0, 0, 20, 20, 20, 20]
    assert [start.job_id for start in await queue.starts()][:2] == [start.job_id for start in await queue.starts()][2:4]


async def test_the_slots_of_a_group_come_back_when_its_dead_workers_lease_ends(time):
    queue = Queue("line", store=time.store)
    worker = Worker("line", nothing, store=time.store, concurrency=4, group=GroupLimits(concurrency=1))
    async with working(worker):
        worker.pause()
        await add(queue, 2, group="a")
        await die_with(time.store, queue, lease="20s")
        worker.resume()
        await time.advance("1m")

    assert await started(queue) == [0, 20, 20]


# a worker that comes back


async def test_a_zombie_is_told_that_its_lease_is_lost_and_changes_nothing(time, caplog):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    refused = []

    async def zombie(job):
        await time.sleep("15s")
        for write in (job.progress(99, "from the grave"), job.log("from the grave")):
            with pytest.raises(LeaseLost) as lost:
                await write
            refused.append(lost.value.job_id)
        return "from the grave"

    async def heir(job):
        await job.progress(10, "mine")
        await time.sleep("20s")
        return "mine"

    async with working(Worker("line", zombie, store=CutOff(time.store), lease="10s")):
        await time.advance("1s")
        async with working(Worker("line", heir, store=time.store)):
            await time.advance("19s")
            await job.refresh()
            assert (job.state, float(job.progress), job.progress.message, job.logs) == ("active", 10, "mine", ())
            await time.advance("1m")

    assert refused == [job.id, job.id]
    assert await started(queue) == [0, 10]
    assert await job.result() == "mine"
    assert (job.crashes, job.attempts_made) == (1, 1)
    assert f"job {job.id}: its lease was lost" in caplog.text


async def test_a_zombie_that_fails_does_not_fail_or_retry_the_job_of_its_heir(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", attempts=3, retry_delay="1s")

    async def zombie(job):
        await time.sleep("15s")
        raise OSError("from the grave")

    async with working(Worker("line", zombie, store=CutOff(time.store), lease="10s")):
        await time.advance("1s")
        async with working(Worker("line", takes(time, "20s"), store=time.store)):
            await time.advance("1m")

    assert await started(queue) == [0, 10]
    assert (await states([job]), job.error, job.attempts_made) == (["completed"], None, 1)


async def test_a_handlers_snapshot_is_fenced_once_its_run_has_ended(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    kept = []

    async def handler(job):
        kept.append(job)

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1s")
        for write in (kept[0].progress(50), kept[0].log("too late")):
            with pytest.raises(LeaseLost):
                await write

    await job.refresh()
    assert (float(job.progress), job.logs) == (100, ())


async def test_a_worker_that_hears_of_a_lost_lease_stops_its_handler(time):
    queue = Queue("line", store=time.store)
    await queue.add("work")
    stopped = []
    cut_off = CutOff(time.store)

    async def handler(job):
        try:
            await time.sleep("1h")
        finally:
            stopped.append(after(time.now()))

    async with working(Worker("line", handler, store=cut_off, lease="9s")):
        await time.advance("1s")
        async with working(Worker("line", takes(time, "1m"), store=time.store)):
            await time.advance("10s")
            cut_off.off = False
            await time.advance("10s")

            # Heartbeats come three times per lease: this one is the first that got through.
            assert stopped == [12]


# a worker that stood still


@pytest.mark.parametrize("ends", ["returns", "raises", "is stopped"])
async def test_a_job_that_a_worker_gets_again_while_it_runs_it_goes_on_and_does_not_run_twice(time, ends):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    began = []

    async def handler(job):
        began.append(after(time.now()))
        await time.sleep("15s")
        await job.progress(50)
        if ends == "raises":
            raise OSError("down")
        await time.sleep("1h" if ends == "is stopped" else "1s")
        return "done"

    # Its heartbeats do not arrive, so that its own claim finds its own lease ended.
    async with working(Worker("line", handler, store=CutOff(time.store), lease="10s", concurrency=2)):
        await time.advance("15.5s")
        # What the handler reports is proven by the lease that it has now.
        assert float((await job.refresh()).progress) == 50
        await time.advance("1s")

    assert began == [0]
    expected = {"returns": ("completed", 1), "raises": ("failed", 1), "is stopped": ("waiting", 0)}[ends]
    assert (*await states([job]), job.attempts_made) == expected


async def test_every_store_lets_a_run_go_on_under_a_new_lease(real_store):
    queue = Queue("line", store=real_store)
    job = await queue.add("work")
    began = []

    async def handler(job):
        began.append(job.record.fence)
        await asyncio.sleep(0.7)
        await job.log("still mine")
        return began[0] < job.record.fence

    async with Worker("line", handler, store=CutOff(real_store), lease="500ms", concurrency=2):
        assert await job.result(timeout=10) is True

    assert len(began) == 1
    assert (await job.refresh()).logs == ("still mine",)


async def test_the_end_of_a_job_that_was_given_to_its_worker_again_meanwhile_counts(time, monkeypatch):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    claim = time.store.claim
    began, lost = [], []

    async def loses_the_second_start(*args):
        answer = await claim(*args)
        if answer.jobs and began and not lost:
            lost.append(1)
            await time.sleep("5s")
            raise StoreUnavailable("the answer is lost")
        return answer

    async def handler(job):
        began.append(after(time.now()))
        await time.sleep("12s")
        return "done"

    cut_off = CutOff(time.store)
    monkeypatch.setattr(time.store, "claim", loses_the_second_start)
    async with working(Worker("line", handler, store=cut_off, lease="10s", concurrency=2)):
        await time.advance("1m")

    assert (began, lost) == ([0], [1])
    assert await job.result() == "done"


async def test_a_worker_that_stood_still_renews_before_it_claims(time, monkeypatch):
    queue = Queue("line", store=time.store)
    job = await queue.add("work")
    extend, calls = time.store.extend, []

    async def noted(*args):
        calls.append(after(time.now()))
        return await extend(*args)

    monkeypatch.setattr(time.store, "extend", noted)
    # Its own thread did not beat either: the machine slept.
    monkeypatch.setattr("paceline.upkeep.heartbeat.Heartbeat._beat_on_clock", lambda self: asyncio.sleep(0))
    async with working(Worker("line", takes(time, "15s"), store=time.store, lease="10s", concurrency=2)):
        await time.advance(0)
        time.clock.move_to(time.clock.now() + 12_000_000)
        await time.advance("5s")

    assert calls == [12]
    assert await started(queue) == [0]
    assert (await states([job]), job.crashes) == (["completed"], 0)


# real time: what threads and blocked loops do


async def test_a_blocked_event_loop_keeps_its_lease_by_the_thread():
    store = open_store("memory://")
    queue = Queue("line", store=store)
    job = await queue.add("work")
    stolen = []

    async def blocks(job):
        thief.start()
        real.sleep(1.2)
        return "kept"

    def steal():
        """Another process that waits for the lease to end."""
        until = real.monotonic() + 1.1
        while real.monotonic() < until:
            claim = asyncio.run(store.claim(Ask(queues=("line",), slots=1, worker="thief", lease=1_000_000)))
            stolen.extend(claim.jobs)
            real.sleep(0.02)

    thief = Thread(target=steal)
    async with Worker("line", blocks, store=store, lease="500ms"):
        assert await job.result(timeout=10) == "kept"
    thief.join()

    assert stolen == []
    assert (await job.refresh()).crashes == 0
    assert len(await queue.starts()) == 1


async def test_a_worker_that_cannot_renew_stops_its_handler_before_the_lease_ends():
    store = open_store("memory://")
    queue = Queue("line", store=store)
    await queue.add("work")
    began: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    class Unreachable(CutOff):
        async def extend(self, worker, leases, lease):
            raise StoreUnavailable("no route to host")

    async def handler(job):
        if not began.done():
            began.set_result(real.monotonic())
            try:
                await asyncio.sleep(60)
            finally:
                ended.set_result(real.monotonic())

    worker = Worker("line", handler, store=Unreachable(store), lease="2.4s")
    async with worker:
        lasted = await asyncio.wait_for(ended, 10) - await began
        worker.pause()

    assert 0.8 < lasted < 2.4


async def test_leases_of_jobs_in_threads_are_kept():
    store = open_store("memory://")
    queue = Queue("line", store=store)
    job = await queue.add("work")

    def handler(job):
        real.sleep(1)
        return "kept"

    async with Worker("line", handler, store=store, lease="400ms"), Worker("line", nothing, store=store):
        assert await job.result(timeout=10) == "kept"

    assert (await job.refresh()).crashes == 0
