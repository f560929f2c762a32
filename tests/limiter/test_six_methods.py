"""D1: the six methods of every kind; the cases of `seed-systems.md` 3.8 and 3.9 as equalities."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline import (
    App,
    CompositeLimiter,
    Concurrency,
    ConfigError,
    Delay,
    EvenlySpaced,
    Limiter,
    LimiterProtocol,
    Rate,
    Unlimited,
)
from paceline.testing import VirtualTime

from .conftest import Timeline

SIX = (
    "can_proceed",
    "record_job_start",
    "record_job_completion",
    "get_next_available_time",
    "set_next_available_time",
    "clear",
)
KINDS = [Unlimited(), Concurrency(2), Rate(2, per="1m"), Delay("1s"), EvenlySpaced(2, per="1m")]


class Limited:
    """A limiter and what it says, in seconds."""

    def __init__(self, kind: Any, timeline: Timeline) -> None:
        self.limiter = Limiter("it", kind, store=timeline.time.store)
        self.timeline = timeline

    async def start(self, times: int = 1) -> None:
        for _ in range(times):
            await self.limiter.record_job_start()

    async def complete(self, times: int = 1) -> None:
        for _ in range(times):
            await self.limiter.record_job_completion()

    async def free(self) -> bool:
        return await self.limiter.can_proceed()

    async def next(self) -> float | None:
        return self.timeline.at(await self.limiter.get_next_available_time())

    async def set_next(self, seconds: float) -> None:
        await self.limiter.set_next_available_time(self.timeline.began + timedelta(seconds=seconds))


# all of them


@pytest.mark.parametrize("name", SIX)
def test_d1_the_six_methods_are_coroutines_everywhere(name: str) -> None:
    for limiter in (Limiter, CompositeLimiter):
        assert inspect.iscoroutinefunction(getattr(limiter, name))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
async def test_every_limiter_is_free_at_first_and_its_next_time_is_now(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    assert isinstance(it.limiter, LimiterProtocol)
    assert (await it.free(), await it.next()) == (True, 0)
    await timeline.time.advance("7s")
    assert (await it.free(), await it.next()) == (True, 7)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
async def test_the_next_time_is_aware_and_in_utc(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    await it.start(3)
    when = await it.limiter.get_next_available_time()
    assert when.tzinfo is UTC and when >= timeline.time.now()


@pytest.mark.parametrize("kind", KINDS[1:], ids=repr)
async def test_a_time_set_from_outside_is_kept_and_only_ever_grows_d13(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    await it.set_next(100)
    assert (await it.free(), await it.next()) == (False, 100)
    await it.set_next(50)
    await it.set_next(-50)
    assert (await it.free(), await it.next()) == (False, 100)
    await it.set_next(120)
    assert await it.next() == 120
    await timeline.time.advance("119.999999s")
    assert not await it.free()
    await timeline.time.advance("1us")
    assert (await it.free(), await it.next()) == (True, 120)


@pytest.mark.parametrize("kind", KINDS[1:], ids=repr)
async def test_a_time_in_the_past_is_ignored(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    await it.set_next(-100)
    assert (await it.free(), await it.next()) == (True, 0)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
async def test_a_naive_time_is_an_error_that_shows_it(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    for wrong in (datetime(2040, 1, 1), "tomorrow", None, 5):
        with pytest.raises(ConfigError, match="when"):
            await it.limiter.set_next_available_time(wrong)  # type: ignore[arg-type]
    assert (await it.free(), await it.next()) == (True, 0)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
async def test_a_completion_without_a_start_has_no_effect(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    await it.complete(3)
    assert (await it.free(), await it.next()) == (True, 0)


@pytest.mark.parametrize("kind", [Rate(2, per="1m"), Delay("1s"), EvenlySpaced(2, per="1m")], ids=repr)
async def test_clear_forgets_starts_and_holds(timeline: Timeline, kind: Any) -> None:
    it = Limited(kind, timeline)
    await it.start(2)
    await it.set_next(500)
    assert not await it.free()
    await it.limiter.clear()
    assert (await it.free(), await it.next()) == (True, 0)


# Unlimited


async def test_unlimited_does_nothing_and_is_always_free_d2_d17(app: App, timeline: Timeline) -> None:
    it = Limited(Unlimited(), timeline)
    await it.start(100)
    await it.set_next(100)
    assert (await it.free(), await it.next()) == (True, 0)
    await it.complete(5)
    await it.limiter.clear()
    assert (await it.free(), await it.next()) == (True, 0)
    assert await it.limiter.try_acquire() is not None
    async with it.limiter.acquire(cost=1000, timeout=0):
        pass


# Concurrency


async def test_concurrency_counts_starts_and_completions_d3(timeline: Timeline) -> None:
    it = Limited(Concurrency(2), timeline)
    await it.start()
    assert await it.free()
    await it.start()
    assert not await it.free()
    await it.complete()
    assert (await it.free(), await it.next()) == (True, 0)
    await it.start()
    assert not await it.free()


async def test_concurrency_never_goes_below_zero(timeline: Timeline) -> None:
    it = Limited(Concurrency(2), timeline)
    await it.complete(2)
    await it.start(2)
    assert not await it.free()


async def test_a_full_concurrency_names_a_next_time_that_is_not_in_the_past(timeline: Timeline) -> None:
    it = Limited(Concurrency(1), timeline)
    await it.start()
    following = await it.next()
    assert following is not None and following > 0


async def test_clear_leaves_live_leases(timeline: Timeline) -> None:
    it = Limited(Concurrency(1), timeline)
    await it.start()
    await it.set_next(100)
    await it.limiter.clear()
    assert not await it.free()
    await it.complete()
    assert (await it.free(), await it.next()) == (True, 0)


async def test_a_start_is_charged_also_when_full_and_each_needs_its_completion(app: App, timeline: Timeline) -> None:
    it = Limited(Concurrency(2), timeline)
    await it.start(5)
    assert (await app.limit_state("it")).used == 5
    await it.complete(3)
    assert not await it.free()
    await it.complete()
    assert await it.free()


async def test_a_completion_frees_own_starts_only(app: App, timeline: Timeline) -> None:
    mine, yours = Limited(Concurrency(2), timeline), Limited(Concurrency(2), timeline)
    await mine.start()
    await yours.start()
    await mine.complete(5)
    assert (await app.limit_state("it")).used == 1
    permit = await mine.limiter.try_acquire()
    await mine.complete()
    assert (await app.limit_state("it")).used == 2
    assert permit is not None
    await permit.release()
    await yours.complete()
    assert (await app.limit_state("it")).used == 0


async def test_a_recorded_start_is_renewed_until_it_is_completed(timeline: Timeline) -> None:
    it = Limited(Concurrency(1), timeline)
    await it.start()
    for _ in range(5):
        await timeline.time.advance("1m")
        assert await it.limiter.try_acquire() is None
    await it.complete()
    assert await it.limiter.try_acquire() is not None


# Rate


async def test_rate_0_of_5_is_free_and_5_of_5_is_not_3_9(timeline: Timeline) -> None:
    it = Limited(Rate(5, per="60s"), timeline)
    assert await it.free()
    await it.start(4)
    assert await it.free()
    await it.start()
    assert (await it.free(), await it.next()) == (False, 60)


async def test_rate_is_not_freed_by_a_completion(timeline: Timeline) -> None:
    it = Limited(Rate(1, per="60s"), timeline)
    await it.start()
    await it.complete()
    assert (await it.free(), await it.next()) == (False, 60)


async def test_rate_slides(timeline: Timeline) -> None:
    it = Limited(Rate(2, per="60s"), timeline)
    await it.start()
    await timeline.time.advance("20s")
    await it.start()
    assert await it.next() == 60
    await timeline.time.advance("40s")
    await it.start()
    assert (await it.free(), await it.next()) == (False, 80)


async def test_rate_charges_a_start_also_when_full(app: App, timeline: Timeline) -> None:
    it = Limited(Rate(2, per="60s"), timeline)
    for _ in range(3):
        await it.start()
        await timeline.time.advance("10s")
    assert (await app.limit_state("it")).used == 3
    assert await it.next() == 70


# Delay


async def test_delay_waits_from_the_last_start_d5(timeline: Timeline) -> None:
    it = Limited(Delay("100ms"), timeline)
    await it.start()
    assert (await it.free(), await it.next()) == (False, 0.1)
    await it.complete()
    assert not await it.free()
    await timeline.time.advance("60ms")
    await it.start()
    assert await it.next() == 0.16
    await timeline.time.advance("100ms")
    assert (await it.free(), await it.next()) == (True, 0.16)


async def test_the_default_delay_is_50_milliseconds(timeline: Timeline) -> None:
    assert Delay() == Delay("50ms") == Delay(gap=0.05)
    it = Limited(Delay(), timeline)
    await it.start()
    assert await it.next() == 0.05


# EvenlySpaced


async def test_evenly_spaced_starts_are_per_through_max_apart_d6(timeline: Timeline) -> None:
    it = Limited(EvenlySpaced(10, per="10s"), timeline)
    await it.start()
    assert (await it.free(), await it.next()) == (False, 1)
    await timeline.time.advance("1s")
    assert await it.free()


@pytest.mark.parametrize("takes", ["0s", "300ms", "900ms"], ids=["at once", "short", "long"])
async def test_evenly_spaced_is_measured_from_start_to_start_however_long_jobs_take(
    timeline: Timeline, takes: str
) -> None:
    it = Limited(EvenlySpaced(10, per="10s"), timeline)
    for n in range(5):
        await it.start()
        await timeline.time.advance(takes)
        await it.complete()
        assert await it.next() == n + 1
        await timeline.time.advance(timedelta(seconds=n + 1 - timeline.now))


async def test_evenly_spaced_seven_per_minute_do_not_drift(timeline: Timeline) -> None:
    it = Limited(EvenlySpaced(7, per="60s"), timeline)
    for _ in range(70):
        await it.start()
        following = await it.next()
        assert following is not None
        await timeline.time.advance(timedelta(seconds=following - timeline.now))
    assert timeline.now == 600


async def test_evenly_spaced_one_per_100_s_is_full_after_one_and_free_when_cleared(timeline: Timeline) -> None:
    it = Limited(EvenlySpaced(1, per="100s"), timeline)
    await it.start()
    assert (await it.free(), await it.next()) == (False, 100)
    await it.limiter.clear()
    assert await it.free()


# together


async def test_all_of_has_the_latest_next_time(timeline: Timeline) -> None:
    it = Limited(Rate(1, per="60s") & Delay("90s") & Concurrency(5), timeline)
    await it.start()
    assert (await it.free(), await it.next()) == (False, 90)


async def test_the_six_methods_count_with_permits_and_jobs_d18(app: App, paceline_time: VirtualTime) -> None:
    app.limit("it", Rate(4, per="60s"), tasks=["step"])

    @app.task()
    async def step() -> None: ...

    limiter = app.limiter("it")
    await limiter.record_job_start()
    async with limiter.acquire():
        pass
    await step.enqueue_many([()] * 5)
    async with app.worker():
        await paceline_time.advance("1s")
        assert len(paceline_time.starts()) == 2
        assert not await limiter.can_proceed()
        await limiter.clear()
        await paceline_time.advance("1ms")
        assert len(paceline_time.starts()) == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: Concurrency(0),
        lambda: Rate(0, per=1),
        lambda: Rate(1, per=0),
        lambda: EvenlySpaced(0, per=1),
        lambda: EvenlySpaced(1, per=0),
        lambda: Delay(0),
        lambda: Delay(-1),
    ],
    ids=["concurrency", "rate", "rate window", "evenly", "evenly window", "delay", "negative delay"],
)
def test_limits_of_nothing_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()
