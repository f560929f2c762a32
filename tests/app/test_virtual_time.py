"""Virtual time: workers, limits, retries, delays and leases on a clock that a test advances."""

from __future__ import annotations

import asyncio
import time as real
from datetime import UTC, datetime
from typing import Any

import pytest

from paceline import App, ConfigError, Job, Queue, Rate, Start, Store, Worker
from paceline.testing import VirtualTime, virtual_time


async def test_the_clock_stands_still_until_it_is_advanced() -> None:
    async with virtual_time("memory://") as time:
        began = time.now()
        await asyncio.sleep(0.01)
        assert time.now() == began and began.tzinfo is UTC
        for step in ("1m", 30, 0.5, 0):
            await time.advance(step)
        assert (time.now() - began).total_seconds() == 90.5


async def test_an_instant_to_begin_at_may_be_given() -> None:
    start = datetime(2040, 2, 29, 12, tzinfo=UTC)
    async with virtual_time(start=start) as time:
        assert time.now() == start
        job = await Queue("q", store=time.store).add("t")
        assert job.created_at == start


def test_the_fixture_is_virtual_time_on_a_memory_store(paceline_time: VirtualTime) -> None:
    assert isinstance(paceline_time, VirtualTime)
    store: Store = paceline_time.store
    assert App(store).store is store


async def test_everything_happens_at_its_own_instant_on_the_way(paceline_time: VirtualTime) -> None:
    app = App(paceline_time.store)
    app.limit("two", Rate(2, per="10s"))
    seen: list[tuple[str, float]] = []
    began = paceline_time.now()

    def note(what: str) -> None:
        seen.append((what, (paceline_time.now() - began).total_seconds()))

    @app.task(attempts=2, retry_delay="1s")
    async def step(name: str) -> None:
        note(name)
        await paceline_time.sleep("3s")
        note(f"{name} ends")
        if seen.count((name, 0)) and not any(what == f"{name} again" for what, _ in seen):
            note(f"{name} again")
            raise ValueError("boom")

    await step.enqueue("a")
    await step.using(delay="2s").enqueue("b")
    async with app.worker():
        await paceline_time.advance("1h")
    assert seen == [
        ("a", 0),
        ("b", 2),
        ("a ends", 3),
        ("a again", 3),
        ("b ends", 5),
        ("a", 10),
        ("a ends", 13),
    ]


async def test_starts_are_those_of_all_queues_in_order(paceline_time: VirtualTime) -> None:
    async def handler(job: Job[Any]) -> None: ...

    first = await Queue("one", store=paceline_time.store).add("a", delay="2s")
    second = await Queue("two", store=paceline_time.store).add("b", delay="1s", group="g", cost=3)
    async with Worker(["one", "two"], handler, store=paceline_time.store):
        await paceline_time.advance("5s")
    starts = paceline_time.starts()
    assert [start.job_id for start in starts] == [second.id, first.id]
    assert all(isinstance(start, Start) for start in starts)
    assert (starts[0].task, starts[0].group, starts[0].cost) == ("b", "g", 3)
    assert paceline_time.starts("a") == paceline_time.starts(task="a") == starts[1:]
    assert paceline_time.starts("nobody") == []


async def test_plain_handlers_in_threads_are_waited_for(paceline_time: VirtualTime) -> None:
    app = App(paceline_time.store)

    @app.task()
    def slow() -> str:
        real.sleep(0.02)
        return "done"

    jobs = await slow.enqueue_many([()] * 3)
    async with app.worker(concurrency=1):
        await paceline_time.advance("1ms")
        assert [await job.result(timeout=0) for job in jobs] == ["done"] * 3


async def test_the_lease_of_a_worker_that_died_ends_on_this_clock(paceline_time: VirtualTime) -> None:
    from paceline.stores.interface import Ask

    queue = Queue("q", store=paceline_time.store)
    await queue.add("t")
    ask = Ask(queues=("q",), slots=1, worker="dead", lease=30_000_000)
    assert len((await paceline_time.store.claim(ask)).jobs) == 1
    done: list[datetime] = []

    async def handler(job: Job[Any]) -> None:
        done.append(paceline_time.now())

    began = paceline_time.now()
    async with Worker("q", handler, store=paceline_time.store):
        await paceline_time.advance("1m")
    assert [(when - began).total_seconds() for when in done] == [30]


async def test_an_hour_of_limits_takes_milliseconds(paceline_time: VirtualTime) -> None:
    app = App(paceline_time.store)
    app.limit("slow", Rate(5, per="1m"))

    @app.task()
    async def step() -> None: ...

    await step.enqueue_many([()] * 300)
    since = real.perf_counter()
    async with app.worker():
        await paceline_time.advance("1h")
    assert len(paceline_time.starts()) == 300
    assert real.perf_counter() - since < 2


@pytest.mark.parametrize("url", ["redis://localhost", "postgresql://localhost/jobs"])
async def test_a_store_with_a_clock_of_its_own_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=url):
        async with virtual_time(url):
            pass


@pytest.mark.parametrize("wrong", [-1, "5 parsecs", float("nan")], ids=repr)
async def test_time_goes_forward_only(paceline_time: VirtualTime, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="duration="):
        await paceline_time.advance(wrong)
