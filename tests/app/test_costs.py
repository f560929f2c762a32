"""What one job takes from its limits, and costs that can never fit."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any

import pytest

from paceline import App, Concurrency, ConfigError, Delay, EvenlySpaced, JobFailed, NeverFits, Rate
from paceline.testing import VirtualTime

from .conftest import Timeline


async def noop() -> None: ...


async def test_a_cost_counts_for_every_rate_the_job_meets(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("requests", Rate(10, per="1m"))
    app.limit("tokens", Rate(7, per="1m"), tasks=["step"])
    await app.task(name="step", cost=3)(noop).enqueue_many([()] * 4)
    async with app.worker():
        await paceline_time.advance("1s")
        assert timeline.starts() == [0, 0]
        assert [(await app.limit_state(name)).used for name in ("requests", "tokens")] == [6, 6]
        await paceline_time.advance("60s")
    assert timeline.starts() == [0, 0, 60, 60]


async def test_a_mapping_gives_each_limit_its_own_cost_and_others_one(app: App, paceline_time: VirtualTime) -> None:
    for name in ("requests", "input", "output"):
        app.limit(name, Rate(1000, per="1m"))
    await app.task(name="step", cost={"input": 300, "output": 50})(noop).enqueue_many([()] * 2)
    async with app.worker():
        await paceline_time.advance("1s")
    used = [(await app.limit_state(name)).used for name in ("requests", "input", "output")]
    assert used == [2, 600, 100]


async def test_any_mapping_is_a_mapping(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tokens", Rate(10, per="1m"))
    task = app.task(name="step")(noop)
    await task.using(cost=MappingProxyType({"tokens": 4})).enqueue()  # type: ignore[arg-type]
    async with app.worker():
        await paceline_time.advance("1s")
    assert (await app.limit_state("tokens")).used == 4


async def test_the_log_of_starts_shows_the_cost(app: App, paceline_time: VirtualTime) -> None:
    task = app.task(name="step")(noop)
    for cost in (1, 5, {"tokens": 7}):
        await task.using(cost=cost).enqueue()  # type: ignore[arg-type]
    async with app.worker(concurrency=1):
        await paceline_time.advance("1s")
    assert [start.cost for start in paceline_time.starts()] == [1, 5, {"tokens": 7}]


async def test_concurrency_counts_a_job_as_one_whatever_it_costs(app: App, paceline_time: VirtualTime) -> None:
    app.limit("slots", Concurrency(2))

    @app.task(cost=100)
    async def step() -> None:
        await paceline_time.sleep("1s")

    await step.enqueue_many([()] * 5)
    async with app.worker():
        await paceline_time.advance("500ms")
        assert (await app.limit_state("slots")).used == 2
        await paceline_time.advance("5s")


@pytest.mark.parametrize(
    ("kind", "starts"),
    [(Delay("2s"), [0, 2, 4]), (EvenlySpaced(30, per="1m"), [0, 6, 12])],
    ids=repr,
)
async def test_delay_counts_a_job_as_one_and_evenly_spaced_spaces_by_cost(
    app: App, paceline_time: VirtualTime, timeline: Timeline, kind: Any, starts: list[float]
) -> None:
    app.limit("it", kind)
    await app.task(name="step", cost=3)(noop).enqueue_many([()] * 3)
    async with app.worker():
        await paceline_time.advance("20s")
    assert timeline.starts() == starts


@pytest.mark.parametrize(
    "cost", [6, {"narrow": 6}, {"narrow": 6, "wide": 1}], ids=["for all", "by name", "two by name"]
)
async def test_a_cost_that_never_fits_is_refused_at_enqueue_and_nothing_is_stored(app: App, cost: Any) -> None:
    app.limit("narrow", Rate(5, per="1m"), tasks=["step"])
    app.limit("wide", Rate(50, per="1m"))
    task = app.task(name="step", cost=cost)(noop)
    with pytest.raises(NeverFits) as caught:
        await task.enqueue()
    assert (caught.value.limit, caught.value.cost, caught.value.allowed) == ("narrow", 6, 5)
    assert all(word in str(caught.value) for word in ("'narrow'", "6", "5"))
    queue = app.queue()
    with pytest.raises(NeverFits):
        await queue.add_many([("step", None), ("step", None, {"cost": cost})])
    with pytest.raises(NeverFits):
        task.enqueue_sync()
    assert sum((await queue.counts()).values()) == 0
    await task.using(cost=5).enqueue()
    await app.queue("other").add("other", cost=cost)


async def test_the_cost_of_a_group_is_measured_by_the_numbers_of_that_group(app: App) -> None:
    app.limit("tenant", Rate(5, per="1m"), by="group", overrides={"big": Rate(10, per="1m")})
    queue = app.queue()
    with pytest.raises(NeverFits):
        await queue.add("step", cost=6, group="small")
    await queue.add("step", cost=6, group="big")
    await queue.add("step", cost=6)
    await app.override("tenant", Rate(6, per="1m"), group="small")
    await queue.add("step", cost=6, group="small")


async def test_a_limit_lowered_below_a_waiting_job_fails_it_at_the_claim_and_others_go_on(
    app: App, paceline_time: VirtualTime
) -> None:
    app.limit("tokens", Rate(10, per="1m"))
    task = app.task(name="step")(noop)
    big, small = await task.using(cost=8).enqueue(), await task.enqueue()
    await app.override("tokens", Rate(5, per="1m"))
    async with app.worker():
        await paceline_time.advance("1s")
    assert (await big.refresh()).state == "failed"
    assert big.error is not None and "NeverFits" in big.error and "'tokens'" in big.error
    assert (big.attempts_made, big.started_at) == (0, None)
    assert (await small.refresh()).state == "completed"
    with pytest.raises(JobFailed, match="NeverFits"):
        await big.result()


async def test_whoever_waits_for_a_job_that_never_fits_any_more_is_told(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tokens", Rate(10, per="1m"))
    big = await app.task(name="step")(noop).using(cost=8).enqueue()
    waiting = asyncio.create_task(big.result())
    await paceline_time.advance(0)
    await app.override("tokens", Rate(5, per="1m"))
    async with app.worker():
        await paceline_time.advance("1s")
    assert (await big.refresh()).state == "failed"
    told = waiting.done()
    waiting.cancel()
    assert told


async def test_a_job_that_never_fits_any_more_is_kept_as_long_as_it_asked(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tokens", Rate(10, per="1m"))
    big = await app.task(name="step")(noop).using(cost=8, keep=0).enqueue()
    await app.override("tokens", Rate(5, per="1m"))
    async with app.worker():
        await paceline_time.advance("1s")
    assert await app.get(big.id) is None


async def test_a_cost_that_never_fits_a_workers_own_limiter_does_not_hide_other_jobs(
    app: App, paceline_time: VirtualTime
) -> None:
    task = app.task(name="step")(noop)
    big = await task.using(cost=5, group="a").enqueue()
    others = [await task.using(group=group).enqueue() for group in ("b", None)]
    async with app.worker(limiter=Rate(3, per="1m")):
        await paceline_time.advance("1m")
    assert [(await job.refresh()).state for job in others] == ["completed", "completed"]
    assert (await big.refresh()).state == "waiting"


async def test_a_permit_that_never_fits_is_refused_too(app: App) -> None:
    limiter = app.limiter("tokens", Rate(10, per="1m"))
    with pytest.raises(NeverFits, match="'tokens'"):
        await limiter.try_acquire(11)
    with pytest.raises(NeverFits):
        async with limiter.acquire(11):
            pass
    assert (await app.limit_state("tokens")).used == 0


@pytest.mark.parametrize("cost", [0, -1, 1.5, True, "2", None, {"": 1}, {"tokens": 0}, {"tokens": -3}], ids=repr)
async def test_a_cost_that_is_no_count_is_an_error_that_shows_it(app: App, cost: Any) -> None:
    with pytest.raises(ConfigError, match="cost"):
        await app.queue().add("step", cost=cost)
    assert sum((await app.queue().counts()).values()) == 0
