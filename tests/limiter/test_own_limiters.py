"""D1, D11: objects of a user's own given to a worker."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline import App, ConfigError, Job, Queue, Rate, Worker
from paceline.stores.interface import Store
from paceline.testing import VirtualTime

from .conftest import Timeline
from .own import SIX, Failing, OwnLimiter, RealTime

TELLING = ["record_job_start", "record_job_completion"]


@pytest.fixture
def queue(paceline_time: VirtualTime) -> Queue:
    return Queue("q", store=paceline_time.store)


def worker(time: VirtualTime, handler: Any, limiter: Any, concurrency: int = 10, **options: Any) -> Worker:
    return Worker("q", handler, store=time.store, limiter=limiter, concurrency=concurrency, **options)


async def noop(job: Job[None]) -> None: ...


# asked and told


async def test_d11_an_own_limiter_is_asked_before_every_claim_and_told_of_every_start(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    limiter = OwnLimiter(paceline_time)
    await queue.add_many([("t", None)] * 5)
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("1s")
    assert len(paceline_time.starts()) == 5
    assert limiter.calls.count("record_job_start") == limiter.calls.count("record_job_completion") == 5
    asked = 0
    for call in limiter.calls:
        asked += {"can_proceed": 1, "record_job_start": -1}.get(call, 0)
        assert asked >= 0, "a job was started without asking"
    assert limiter.running == 0


async def test_what_it_allows_is_never_exceeded_and_always_used(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = OwnLimiter(paceline_time, most=3)

    async def handler(job: Job[None]) -> None:
        await paceline_time.sleep("1s")

    await queue.add_many([("t", None)] * 12)
    async with worker(paceline_time, handler, limiter):
        await paceline_time.advance("1m")
    assert limiter.highest == 3
    assert timeline.starts() == [n // 3 for n in range(12)]


@pytest.mark.parametrize("how", ["returns", "raises", "times out", "is cancelled", "is handed back"])
async def test_d11_it_is_told_of_the_completion_however_the_job_ended(
    queue: Queue, paceline_time: VirtualTime, how: str
) -> None:
    limiter = OwnLimiter(paceline_time)

    async def handler(job: Job[None]) -> None:
        if how == "raises":
            raise ValueError("boom")
        if how != "returns":
            await paceline_time.sleep("1h")

    job = await queue.add("t", timeout="5s" if how == "times out" else None)
    running = worker(paceline_time, handler, limiter)
    async with running:
        await paceline_time.advance("1s")
        if how == "is cancelled":
            await job.cancel()
        if how == "is handed back":
            await running.stop(grace=0)
        await paceline_time.advance("10s")
    assert limiter.calls.count("record_job_start") == limiter.calls.count("record_job_completion") == 1
    expected = {"returns": "completed", "is cancelled": "cancelled", "is handed back": "waiting"}
    assert (await job.refresh()).state == expected.get(how, "failed")


async def test_nothing_to_do_is_not_told_as_a_start(queue: Queue, paceline_time: VirtualTime) -> None:
    limiter = OwnLimiter(paceline_time)
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("5m")
    assert "record_job_start" not in limiter.calls


# waiting for it


@pytest.mark.parametrize("names_the_time", [True, False], ids=["says when", "says now"])
async def test_one_that_refuses_for_two_seconds_costs_fewer_than_ten_calls(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline, names_the_time: bool
) -> None:
    limiter = OwnLimiter(paceline_time)
    limiter.opens = timeline.began + timedelta(seconds=2)
    if not names_the_time:

        async def now() -> datetime:
            limiter.calls.append("get_next_available_time")
            return paceline_time.now()

        limiter.get_next_available_time = now  # type: ignore[method-assign]
    await queue.add("t")
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("1.999s")
        calls = len(limiter.calls)
        await paceline_time.advance("5s")
    assert calls < 10
    starts = timeline.starts()
    assert len(starts) == 1
    assert starts[0] == 2 if names_the_time else 2 <= starts[0] < 4


async def test_jobs_that_arrive_while_it_refuses_do_not_make_it_costlier(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = OwnLimiter(paceline_time)
    limiter.opens = timeline.began + timedelta(seconds=2)
    async with worker(paceline_time, noop, limiter):
        for _ in range(50):
            await queue.add("t")
            await paceline_time.advance("20ms")
        calls = len(limiter.calls)
        await paceline_time.advance("5s")
    assert timeline.starts() == [2] * 50
    assert calls < 10


async def test_a_slot_of_an_own_limiter_that_frees_is_used_at_once(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = OwnLimiter(paceline_time, most=1)

    async def handler(job: Job[None]) -> None:
        await paceline_time.sleep("10ms")

    await queue.add_many([("t", None)] * 3)
    async with worker(paceline_time, handler, limiter):
        await paceline_time.advance("1m")
    assert timeline.starts() == [0, 0.01, 0.02]


# errors


@pytest.mark.parametrize("missing", SIX)
def test_one_that_lacks_a_method_is_an_error_that_names_it(paceline_time: VirtualTime, app: App, missing: str) -> None:
    lacking = type("Lacking", (), {name: getattr(OwnLimiter, name) for name in SIX if name != missing})()
    with pytest.raises(ConfigError) as caught:
        worker(paceline_time, noop, lacking)
    assert missing in str(caught.value)
    with pytest.raises(ConfigError):
        app.worker(limiter=lacking)


@pytest.mark.parametrize("wrong", [5, "openai", Rate, OwnLimiter, {"max": 1}], ids=repr)
def test_what_is_no_limiter_is_an_error_that_shows_it(paceline_time: VirtualTime, wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        worker(paceline_time, noop, wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("method", ["can_proceed", "get_next_available_time"])
async def test_one_that_raises_makes_the_claim_wait_is_logged_and_loses_nothing(
    queue: Queue,
    paceline_time: VirtualTime,
    timeline: Timeline,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    limiter = OwnLimiter(paceline_time)
    if method != "can_proceed":
        limiter.opens = timeline.began + timedelta(seconds=5)
    working = getattr(limiter, method)
    calls = 0

    async def broken() -> Any:
        nonlocal calls
        calls += 1
        if timeline.now < 5:
            raise RuntimeError("no answer today")
        return await working()

    setattr(limiter, method, broken)
    await queue.add_many([("t", None)] * 3)
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("4s")
        assert (await queue.counts())["waiting"] == 3
        assert timeline.starts() == []
        await paceline_time.advance("20s")
    assert len(timeline.starts()) == 3
    assert (await queue.counts())["completed"] == 3
    assert calls < 20
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors and "no answer today" in caplog.text


@pytest.mark.parametrize("method", ["record_job_start", "record_job_completion"])
async def test_one_that_raises_when_it_is_told_is_logged_and_loses_nothing(
    queue: Queue, paceline_time: VirtualTime, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    limiter = OwnLimiter(paceline_time)

    async def broken() -> None:
        raise RuntimeError("no answer today")

    setattr(limiter, method, broken)
    await queue.add_many([("t", None)] * 3)
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("10s")
    assert (await queue.counts())["completed"] == 3
    assert "no answer today" in caplog.text


@pytest.mark.parametrize("method", ["can_proceed", "get_next_available_time", *TELLING])
async def test_something_that_is_cancelled_inside_of_it_is_an_error_like_any_other(
    real_store: Store, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    limiter = Failing(RealTime(), method, asyncio.CancelledError, times=2)
    if method == "get_next_available_time":
        limiter.opens = datetime.now(UTC) + timedelta(seconds=0.5)
    queue = Queue("q", store=real_store)
    await queue.add_many([("t", None)] * 5)
    async with asyncio.timeout(20):
        await Worker("q", noop, store=real_store, limiter=limiter).run(until_empty=True)
    assert (await queue.counts())["completed"] == 5
    assert "CancelledError" in caplog.text


@pytest.mark.parametrize("method", ["can_proceed", "get_next_available_time", *TELLING])
async def test_a_worker_that_is_cancelled_while_it_waits_for_its_limiter_ends(real_store: Store, method: str) -> None:
    limiter = OwnLimiter(RealTime(), most=0 if method == "get_next_available_time" else 1)
    works, asked = getattr(limiter, method), asyncio.Event()

    async def slow() -> Any:
        asked.set()
        await asyncio.sleep(0.2)
        return await works()

    setattr(limiter, method, slow)
    queue = Queue("q", store=real_store)
    await queue.add("t")
    running = asyncio.ensure_future(Worker("q", noop, store=real_store, limiter=limiter).run())
    async with asyncio.timeout(20):
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert limiter.running == 0
    assert (await queue.counts())["active"] == 0


@pytest.mark.parametrize("method", TELLING)
async def test_one_with_a_method_that_is_no_coroutine_is_logged_and_loses_nothing(
    queue: Queue, paceline_time: VirtualTime, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    limiter = OwnLimiter(paceline_time)
    setattr(limiter, method, lambda: None)
    await queue.add_many([("t", None)] * 3)
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("10s")
    assert (await queue.counts())["completed"] == 3
    assert f"failed in {method}" in caplog.text


async def test_one_that_names_a_naive_time_is_logged_and_asked_again(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = OwnLimiter(paceline_time)
    limiter.opens = timeline.began + timedelta(seconds=2)

    async def naive() -> datetime:
        return datetime(2030, 1, 1)

    limiter.get_next_available_time = naive  # type: ignore[method-assign]
    await queue.add("t")
    async with worker(paceline_time, noop, limiter):
        await paceline_time.advance("10s")
    assert len(timeline.starts()) == 1
    assert "time zone" in caplog.text


# shared


@dataclass
class Unhashable:
    """A limiter written as a data class: it compares by value and so has no hash."""

    time: VirtualTime
    most: int
    inner: OwnLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.inner = OwnLimiter(self.time, self.most)

    async def can_proceed(self) -> bool:
        return await self.inner.can_proceed()

    async def record_job_start(self) -> None:
        await self.inner.record_job_start()

    async def record_job_completion(self) -> None:
        await self.inner.record_job_completion()

    async def get_next_available_time(self) -> datetime:
        return await self.inner.get_next_available_time()

    async def set_next_available_time(self, when: datetime) -> None:
        await self.inner.set_next_available_time(when)

    async def clear(self) -> None:
        await self.inner.clear()


@pytest.mark.parametrize("unhashable", [False, True], ids=["an object", "a data class"])
async def test_one_object_given_to_several_workers_is_shared_by_them(
    queue: Queue, paceline_time: VirtualTime, unhashable: bool
) -> None:
    given: Any = Unhashable(paceline_time, 2) if unhashable else OwnLimiter(paceline_time, 2)
    own = given.inner if unhashable else given

    async def handler(job: Job[None]) -> None:
        await paceline_time.sleep("1s")

    await queue.add_many([("t", None)] * 12)
    crew = [worker(paceline_time, handler, given) for _ in range(3)]
    async with crew[0], crew[1], crew[2]:
        await paceline_time.advance("5m")
    assert (await queue.counts())["completed"] == 12
    assert own.highest == 2


async def test_a_kind_is_private_to_each_worker_a3(
    queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    await queue.add_many([("t", None)] * 12)
    crew = [worker(paceline_time, noop, Rate(2, per="1m")) for _ in range(3)]
    async with crew[0], crew[1], crew[2]:
        await paceline_time.advance("90s")
    assert timeline.starts() == [0] * 6 + [60] * 6


async def test_one_named_limiter_given_to_several_workers_is_shared_by_them_a3(
    app: App, queue: Queue, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    await queue.add_many([("t", None)] * 6)
    limiter = app.limiter("shared", Rate(2, per="1m"))
    crew = [worker(paceline_time, noop, limiter) for _ in range(3)]
    async with crew[0], crew[1], crew[2]:
        await paceline_time.advance("130s")
    assert timeline.starts() == [0, 0, 60, 60, 120, 120]
