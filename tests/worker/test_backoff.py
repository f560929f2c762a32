"""Refusals without a time: the hold backs off exponentially with jitter, and a later success resets it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from paceline import App, Backoff, Limit, Queue, Rate, RateLimited, Worker

from .helpers import add, refuses_first, seconds, started, working


@pytest.fixture
def app(time) -> App:
    return App(time.store)


async def holds_of(time, app, handler, number=1) -> list[float]:
    """How long the limit was held after each refusal, as seconds from one start to the next."""
    queue = app.queue("line")
    await add(queue, number, "send")
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("3h")
    times = await started(queue)
    return [second - first for first, second in pairwise(times)]


async def test_refusals_in_a_row_without_a_time_hold_longer_and_longer_with_jitter(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])

    holds = await holds_of(time, app, refuses_first(*[RateLimited() for _ in range(6)]))

    assert len(holds) == 6
    for number, hold in enumerate(holds):
        # Always d + uniform(0, d), d = 1 s · 2^(k−1).
        assert 2**number <= hold < 2 ** (number + 1)


async def test_a_backoff_of_its_own_has_its_numbers_and_its_maximum(time, app):
    backoff = Backoff(initial="10s", multiplier=3, maximum="1m")
    app.limit("service", Rate(100, per="1s"), tasks=["send"], backoff=backoff)

    holds = await holds_of(time, app, refuses_first(*[RateLimited() for _ in range(5)]))

    assert len(holds) == 5
    for base, hold in zip((10, 30, 60, 60, 60), holds, strict=True):
        assert base <= hold < 2 * base


async def test_the_jitter_spreads_holds_over_the_whole_range(time):
    tasks = [f"send-{number}" for number in range(60)]
    limits = [Limit(task, Rate(100, per="1s"), tasks=[task]) for task in tasks]
    queue = Queue("line", store=time.store, limits=limits)
    await queue.add_many([(task, None) for task in tasks])

    async with working(
        Worker("line", refuses_first(*[RateLimited() for _ in tasks]), store=time.store, concurrency=60)
    ):
        await time.advance("1m")

    holds = seconds((await queue.starts())[60:])
    assert len(holds) == 60
    assert 1 <= min(holds) < 1.3
    assert 1.7 < max(holds) < 2
    assert len(set(holds)) > 50


async def test_a_success_that_started_after_the_hold_resets_the_backoff(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    refuse = iter([True, True, False, True])

    async def handler(job):
        if next(refuse, False):
            raise RateLimited

    holds = await holds_of(time, app, handler, number=2)

    # Refused twice, then a success, then the second job is refused: as if for the first time.
    assert 1 <= holds[0] < 2 <= holds[1] < 4
    assert holds[2] == 0
    assert 1 <= holds[3] < 2
    assert len(holds) == 4


async def test_a_success_that_started_before_the_hold_resets_nothing(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")
    refusals = [RateLimited(), RateLimited()]

    async def handler(job):
        if job.data == "long":
            # It ends while the limit is held.
            await time.sleep("500ms")
        elif refusals:
            raise refusals.pop()

    await queue.add("send", "long")
    await queue.add("send")
    async with working(Worker("line", handler, store=time.store, concurrency=2)):
        await time.advance("1m")

    times = await started(queue)
    assert times[:2] == [0, 0]
    assert 1 <= times[2] < 2
    assert 2 <= times[3] - times[2] < 4


async def test_refusals_of_jobs_that_started_before_the_hold_are_part_of_the_same_refusal(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")
    refused = []

    async def handler(job):
        if len(refused) < 10:
            refused.append(job.data)
            await time.sleep("100ms")
            raise RateLimited

    await add(queue, 10, "send")
    async with working(Worker("line", handler, store=time.store, concurrency=10)):
        await time.advance("1h")

    # Ten jobs met the same closed door: that is the first refusal in a row, not the tenth.
    times = await started(queue)
    assert times[:10] == [0] * 10
    assert 1 <= times[10] - 0.1 < 2
