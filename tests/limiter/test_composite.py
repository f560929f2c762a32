"""D7: several limiters as one: all must agree, the latest time wins, everything is passed on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline import (
    App,
    CompositeLimiter,
    Concurrency,
    ConfigError,
    Delay,
    Job,
    Limiter,
    LimiterProtocol,
    Queue,
    Rate,
    Unlimited,
    Worker,
)
from paceline.stores.interface import Target
from paceline.testing import VirtualTime

from .conftest import Timeline
from .own import SIX, Failing, OwnLimiter


@pytest.fixture
def make(paceline_time: VirtualTime) -> Any:
    numbers = iter(range(100))

    def limiter(kind: Any) -> Limiter:
        return Limiter(f"limiter-{next(numbers)}", kind, store=paceline_time.store)

    return limiter


# 3.8


async def test_an_empty_composite_is_free_and_its_next_time_is_now_and_aware() -> None:
    composite = CompositeLimiter()
    assert isinstance(composite, LimiterProtocol)
    assert await composite.can_proceed()
    when = await composite.get_next_available_time()
    assert when.tzinfo is not None and abs((when - datetime.now(UTC)).total_seconds()) < 5
    await composite.record_job_start()
    await composite.record_job_completion()
    await composite.set_next_available_time(datetime(2040, 1, 1, tzinfo=UTC))
    await composite.clear()
    assert await composite.can_proceed()


async def test_two_unlimited_ones_are_free(make: Any, timeline: Timeline) -> None:
    composite = CompositeLimiter([make(Unlimited()), make(Unlimited())])
    assert await composite.can_proceed()
    assert timeline.at(await composite.get_next_available_time()) == 0


async def test_one_full_part_is_enough_to_refuse(make: Any) -> None:
    full = make(Concurrency(1))
    await full.record_job_start()
    assert not await CompositeLimiter([make(Unlimited()), full]).can_proceed()


async def test_d7_add_limiter_takes_effect_at_once(make: Any) -> None:
    composite = CompositeLimiter()
    assert await composite.can_proceed()
    full = make(Concurrency(1))
    await full.record_job_start()
    composite.add_limiter(full)
    assert not await composite.can_proceed()
    composite.add_limiter(make(Delay("100ms")))
    await full.record_job_completion()
    assert await composite.can_proceed()


async def test_starts_and_completions_are_passed_on_to_every_part(make: Any, timeline: Timeline) -> None:
    slots, rate = make(Concurrency(2)), make(Rate(3, per="1m"))
    composite = CompositeLimiter([slots, rate])
    for _ in range(2):
        await composite.record_job_start()
    assert (await slots.can_proceed(), await rate.can_proceed()) == (False, True)
    await composite.record_job_completion()
    assert await composite.can_proceed()
    await composite.record_job_start()
    assert timeline.at(await rate.get_next_available_time()) == 60


async def test_d7_the_latest_next_time_wins(make: Any, timeline: Timeline) -> None:
    short, long = make(Delay("10ms")), make(Delay("1s"))
    await long.record_job_start()
    for parts in ([short, long], [long, short]):
        assert timeline.at(await CompositeLimiter(parts).get_next_available_time()) == 1


async def test_a_time_set_from_outside_is_passed_on_to_every_part(make: Any, timeline: Timeline) -> None:
    parts = [make(Rate(5, per="1s")), make(Concurrency(5))]
    composite = CompositeLimiter(parts)
    await composite.set_next_available_time(timeline.began + timedelta(seconds=100))
    assert not await composite.can_proceed()
    assert [timeline.at(await part.get_next_available_time()) for part in parts] == [100, 100]
    with pytest.raises(ConfigError, match="when"):
        await composite.set_next_available_time(datetime(2040, 1, 1))


async def test_clear_is_passed_on_to_every_part(make: Any, timeline: Timeline) -> None:
    parts = [make(Delay("1h")), make(Rate(1, per="1h"))]
    composite = CompositeLimiter(parts)
    await composite.record_job_start()
    assert not await composite.can_proceed()
    await composite.clear()
    assert [await part.can_proceed() for part in parts] == [True, True]


async def test_d7_the_first_refusal_ends_the_question(paceline_time: VirtualTime) -> None:
    parts = [OwnLimiter(paceline_time), OwnLimiter(paceline_time, most=0), OwnLimiter(paceline_time)]
    assert not await CompositeLimiter(parts).can_proceed()
    assert [part.calls for part in parts] == [["can_proceed"], ["can_proceed"], []]


async def test_composites_nest(make: Any, timeline: Timeline) -> None:
    inner = CompositeLimiter([make(Delay("5s"))])
    outer = CompositeLimiter([make(Delay("2s")), inner])
    await outer.record_job_start()
    assert not await inner.can_proceed()
    assert timeline.at(await outer.get_next_available_time()) == 5


def test_a_composite_cannot_be_part_of_itself() -> None:
    composite = CompositeLimiter()
    with pytest.raises(ConfigError, match="itself"):
        composite.add_limiter(composite)


def test_a_composite_cannot_be_part_of_one_of_its_parts() -> None:
    inner = CompositeLimiter()
    outer = CompositeLimiter([CompositeLimiter([inner])])
    with pytest.raises(ConfigError, match="itself"):
        inner.add_limiter(outer)


@pytest.mark.parametrize("problem", [ValueError, asyncio.CancelledError], ids=["an error", "cancelled inside"])
@pytest.mark.parametrize("method", ["record_job_start", "record_job_completion", "set_next_available_time", "clear"])
async def test_every_part_is_notified_whatever_another_one_raises(
    paceline_time: VirtualTime, method: str, problem: type[BaseException]
) -> None:
    values = [paceline_time.now()] if method == "set_next_available_time" else []
    parts = [Failing(paceline_time, method, problem), OwnLimiter(paceline_time)]
    with pytest.raises(problem):
        await getattr(CompositeLimiter(parts), method)(*values)
    assert parts[1].calls == [method]
    parts.append(Failing(paceline_time, method, problem))
    with pytest.raises(BaseExceptionGroup, match=f"2 limiters failed in {method}"):
        await getattr(CompositeLimiter(parts), method)(*values)
    assert parts[1].calls == [method] * 2


@pytest.mark.parametrize("missing", SIX)
def test_a_part_that_lacks_a_method_is_an_error_that_names_it(missing: str) -> None:
    methods = {name: getattr(OwnLimiter, name) for name in SIX if name != missing}
    lacking = type("Lacking", (), methods)()
    with pytest.raises(ConfigError) as caught:
        CompositeLimiter([lacking])
    assert missing in str(caught.value)
    with pytest.raises(ConfigError):
        CompositeLimiter().add_limiter(lacking)


@pytest.mark.parametrize("wrong", [None, 5, "openai", Limiter, {"max": 1}], ids=repr)
def test_what_is_no_limiter_is_an_error_that_shows_it(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        CompositeLimiter([wrong])
    assert repr(wrong) in str(caught.value)


def test_a_kind_in_a_composite_is_an_error_that_says_what_is_expected_there() -> None:
    with pytest.raises(ConfigError) as caught:
        CompositeLimiter([Rate(1, per="1s")])  # type: ignore[list-item]
    assert "Limiter" in str(caught.value) and "expected a kind" not in str(caught.value)


# given to a worker


async def noop(job: Job[None]) -> None: ...


async def test_a_composite_of_named_limiters_binds_a_worker_exactly(
    make: Any, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    queue = Queue("q", store=paceline_time.store)
    await queue.add_many([("t", None)] * 6)
    limiter = CompositeLimiter([make(Rate(3, per="1m")), make(Delay("5s"))])
    async with Worker("q", noop, store=paceline_time.store, concurrency=10, limiter=limiter):
        await paceline_time.advance("5m")
    assert timeline.starts() == [0, 5, 10, 60, 65, 70]


async def test_d7_a_start_is_charged_to_all_parts_or_to_none(app: App, paceline_time: VirtualTime) -> None:
    slots, rate = app.limiter("slots", Concurrency(1)), app.limiter("rate", Rate(9, per="1h"))
    permit = await slots.try_acquire()
    assert permit is not None and await rate.can_proceed()
    await app.queue("q").add_many([("t", None)] * 3)
    limiter = CompositeLimiter([rate, slots])
    async with Worker("q", noop, store=app.store, concurrency=10, limiter=limiter):
        await paceline_time.advance("1m")
        assert (await app.limit_state("rate")).used == 0
        await permit.release()
        await paceline_time.advance("1s")
    assert ((await app.limit_state("rate")).used, (await app.limit_state("slots")).used) == (3, 0)


@pytest.mark.parametrize("own", [False, True], ids=["a named limiter", "an own object"])
async def test_a_limiter_added_while_a_worker_runs_binds_it_from_then_on(
    app: App, paceline_time: VirtualTime, timeline: Timeline, own: bool
) -> None:
    limiter = CompositeLimiter([app.limiter("loose", Rate(100, per="1s"))])
    queue = app.queue("q")
    async with Worker("q", noop, store=app.store, concurrency=10, limiter=limiter):
        await queue.add_many([("t", None)] * 3)
        await paceline_time.advance("1s")
        assert timeline.starts() == [0, 0, 0]
        if own:
            added: Any = OwnLimiter(paceline_time)
            added.opens = timeline.began + timedelta(seconds=30)
        else:
            added = app.limiter("tight", Rate(1, per="29s"))
            await added.record_job_start()
        limiter.add_limiter(added)
        await queue.add("t")
        await paceline_time.advance("28s")
        assert timeline.starts() == [0, 0, 0]
        await paceline_time.advance("10s")
    assert timeline.starts() == [0, 0, 0, 30]


async def test_own_objects_and_named_limiters_mix(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    own = OwnLimiter(paceline_time, most=1)
    named = app.limiter("named", Rate(2, per="1m"))
    await app.queue("q").add_many([("t", None)] * 4)

    async def handler(job: Job[None]) -> None:
        await paceline_time.sleep("1s")

    limiter = CompositeLimiter([own, named])
    async with Worker("q", handler, store=app.store, concurrency=10, limiter=limiter):
        await paceline_time.advance("30s")
        assert len(timeline.starts()) == 2
        await paceline_time.advance("2m")
    starts = timeline.starts()
    assert len(starts) == 4 and starts[2] >= 60
    assert own.highest == 1
    assert own.calls.count("record_job_start") == own.calls.count("record_job_completion") == 4
    assert (await app.limit_state("named")).used == 0


async def test_a_mixed_composite_goes_on_after_a_process_that_died_with_its_slot(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    named = app.limiter("slots", Concurrency(1))
    assert await named.can_proceed()
    assert (await app.store.acquire([Target("slots")], "permit-of-a-dead-process", 30_000_000)).granted
    await app.queue("q").add("t")
    limiter = CompositeLimiter([OwnLimiter(paceline_time), named])
    async with Worker("q", noop, store=app.store, limiter=limiter):
        await paceline_time.advance("2m")
    assert len(timeline.starts()) == 1
