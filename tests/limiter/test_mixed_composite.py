"""Own objects and named limiters in one composite, given to workers: the claim decides what is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from paceline import App, CompositeLimiter, Concurrency, ConfigError, Job, Queue, Rate, Worker
from paceline.stores.interface import Store
from paceline.testing import VirtualTime

from .conftest import Timeline
from .own import Failing, OwnLimiter, RealTime

Given = Callable[[Any], CompositeLimiter]
"""How a named limiter gets into a composite."""


def beside(named: Any) -> CompositeLimiter:
    return CompositeLimiter([OwnLimiter(RealTime()), named])


def inside(named: Any) -> CompositeLimiter:
    return CompositeLimiter([CompositeLimiter([named, OwnLimiter(RealTime())]), OwnLimiter(RealTime())])


class Crowd:
    """Workers, each with a composite of its own around one named limiter, and what they do at the same time."""

    def __init__(self, store: Store, jobs: int) -> None:
        self.app = App(store)
        self.queue = Queue("q", store=store)
        self.jobs = jobs
        self.ran = self.live = self.most = 0
        self.done = asyncio.Event()

    async def work(self, job: Job[None]) -> None:
        self.ran, self.live = self.ran + 1, self.live + 1
        self.most = max(self.most, self.live)
        await asyncio.sleep(0.02)
        self.live -= 1
        if self.ran == self.jobs:
            self.done.set()

    async def run(self, limiters: list[Any], seconds: float) -> bool:
        """True when all jobs ran within this time."""
        await self.queue.add_many([("t", None)] * self.jobs)
        store = self.app.store
        crew = [Worker("q", self.work, store=store, concurrency=5, limiter=limiter) for limiter in limiters]
        running = [asyncio.ensure_future(worker.run()) for worker in crew]
        try:
            async with asyncio.timeout(seconds):
                await self.done.wait()
        except TimeoutError:
            pass
        for worker in crew:
            await worker.stop()
        await asyncio.gather(*running)
        return self.done.is_set()


@pytest.mark.parametrize("given", [beside, inside])
async def test_a_named_rate_beside_own_objects_holds_over_all_workers(real_store: Store, given: Given) -> None:
    crowd = Crowd(real_store, 30)
    named = crowd.app.limiter("shared", Rate(5, per="1h"))
    await crowd.run([given(named) for _ in range(3)], 1.0)
    assert crowd.ran == 5
    assert (await crowd.app.limit_state("shared")).used == 5


@pytest.mark.parametrize("given", [beside, inside])
async def test_named_slots_beside_own_objects_hold_and_are_used_again_at_once(real_store: Store, given: Given) -> None:
    crowd = Crowd(real_store, 40)
    named = crowd.app.limiter("shared", Concurrency(2))
    assert await crowd.run([given(named) for _ in range(3)], 20)
    assert crowd.most == 2
    assert (await crowd.app.limit_state("shared")).used == 0


@pytest.mark.parametrize("problem", [ValueError, asyncio.CancelledError], ids=["an error", "cancelled inside"])
async def test_a_start_is_charged_to_the_others_when_one_part_raises(
    real_store: Store, caplog: pytest.LogCaptureFixture, problem: type[BaseException]
) -> None:
    crowd = Crowd(real_store, 10)
    own = OwnLimiter(RealTime())
    failing = Failing(RealTime(), "record_job_start", problem)
    await crowd.run([CompositeLimiter([failing, own, crowd.app.limiter("shared", Rate(3, per="1h"))])], 0.7)
    assert crowd.ran == 3
    assert own.calls.count("record_job_start") == own.calls.count("record_job_completion") == 3
    assert "failed in record_job_start; the job goes on" in caplog.text


@pytest.mark.parametrize("problem", [ValueError, asyncio.CancelledError], ids=["an error", "cancelled inside"])
async def test_the_others_are_freed_when_one_part_raises(
    real_store: Store, caplog: pytest.LogCaptureFixture, problem: type[BaseException]
) -> None:
    crowd = Crowd(real_store, 5)
    own = OwnLimiter(RealTime(), most=1)
    failing = Failing(RealTime(), "record_job_completion", problem)
    assert await crowd.run([CompositeLimiter([failing, own, crowd.app.limiter("shared", Concurrency(1))])], 20)
    assert (crowd.most, own.running, (await crowd.app.limit_state("shared")).used) == (1, 0, 0)
    assert "failed in record_job_completion; the job goes on" in caplog.text


# in virtual time


async def noop(job: Job[None]) -> None: ...


async def test_a_limiter_of_the_store_added_to_own_objects_at_run_time_is_decided_in_the_claim(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    queue = app.queue("q")
    limiters = [CompositeLimiter([OwnLimiter(paceline_time)]) for _ in range(2)]
    crew = [Worker("q", noop, store=app.store, concurrency=10, limiter=limiter) for limiter in limiters]
    async with crew[0], crew[1]:
        await queue.add_many([("t", None)] * 2)
        await paceline_time.advance("1s")
        for limiter in limiters:
            limiter.add_limiter(app.limiter("tight", Rate(3, per="1m")))
        await queue.add_many([("t", None)] * 9)
        await paceline_time.advance("130s")
    assert timeline.starts() == [0] * 2 + [1] * 3 + [61] * 3 + [121] * 3


async def test_an_own_object_added_while_a_job_runs_is_not_notified_of_its_end(
    app: App, paceline_time: VirtualTime
) -> None:
    async def handler(job: Job[None]) -> None:
        await paceline_time.sleep("1s")

    first, added = OwnLimiter(paceline_time), OwnLimiter(paceline_time)
    limiter = CompositeLimiter([first])
    await app.queue("q").add("t")
    async with Worker("q", handler, store=app.store, limiter=limiter):
        await paceline_time.advance("500ms")
        limiter.add_limiter(added)
        await paceline_time.advance("1s")
        await app.queue("q").add("t")
        await paceline_time.advance("2s")
    assert (first.running, added.running) == (0, 0)
    assert added.calls.count("record_job_start") == added.calls.count("record_job_completion") == 1


async def test_a_named_part_counts_what_a_job_costs(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    queue = app.queue("q")
    for _ in range(4):
        await queue.add("t", cost=2)
    limiter = CompositeLimiter([OwnLimiter(paceline_time), app.limiter("shared", Rate(4, per="1m"))])
    async with Worker("q", noop, store=app.store, concurrency=10, limiter=limiter):
        await paceline_time.advance("90s")
    assert timeline.starts() == [0, 0, 60, 60]


async def test_a_part_that_is_dropped_is_declared_again(app: App, paceline_time: VirtualTime) -> None:
    limiter = CompositeLimiter([OwnLimiter(paceline_time), app.limiter("shared", Rate(4, per="1m"))])
    queue = app.queue("q")
    async with Worker("q", noop, store=app.store, limiter=limiter):
        await queue.add("t")
        await paceline_time.advance("1s")
        await app.drop_limit("shared")
        await queue.add("t")
        await paceline_time.advance("10s")
    assert (await queue.counts())["completed"] == 2
    assert (await app.limit_state("shared")).used == 1


async def test_a_part_that_nobody_declares_is_an_error_at_the_first_claim(app: App, paceline_time: VirtualTime) -> None:
    limiter = CompositeLimiter([OwnLimiter(paceline_time), app.limiter("unknown")])
    with pytest.raises(ConfigError, match="unknown"):
        await Worker("q", noop, store=app.store, limiter=limiter).run(until_empty=True)


async def test_one_object_in_several_composites_is_shared_by_their_workers(
    app: App, paceline_time: VirtualTime
) -> None:
    async def handler(job: Job[None]) -> None:
        await paceline_time.sleep("1s")

    own, other = OwnLimiter(paceline_time, most=2), OwnLimiter(paceline_time)
    await app.queue("q").add_many([("t", None)] * 12)
    given: list[Any] = [own, CompositeLimiter([other, own]), CompositeLimiter([own, other])]
    crew = [Worker("q", handler, store=app.store, limiter=limiter) for limiter in given]
    async with crew[0], crew[1], crew[2]:
        await paceline_time.advance("5m")
    assert (await app.queue("q").counts())["completed"] == 12
    assert own.highest == 2


async def test_a_composite_with_rules_of_its_own_is_asked_as_a_whole(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    class Later(CompositeLimiter):
        async def can_proceed(self) -> bool:
            return timeline.now >= 5 and await super().can_proceed()

        async def get_next_available_time(self) -> Any:
            return max(await super().get_next_available_time(), timeline.began + timedelta(seconds=5))

    await app.queue("q").add_many([("t", None)] * 3)
    limiter = Later([OwnLimiter(paceline_time), app.limiter("shared", Rate(2, per="1m"))])
    async with Worker("q", noop, store=app.store, limiter=limiter):
        await paceline_time.advance("90s")
    assert timeline.starts() == [5, 5, 65]
