"""D16: the four default names of seed 003 resolve with `app.limiter(...)`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline import App, Concurrency, ConfigError, EvenlySpaced, Job, Queue, Rate, Worker
from paceline.testing import VirtualTime

from .conftest import Timeline

FREE = ("jobqueue.limiter", "jobqueue.limiter.null")
DECLARED = ("jobqueue.limiter.concurrent", "jobqueue.limiter.rate.evenlyspaced")


@pytest.mark.parametrize("name", FREE)
async def test_d16_the_generic_and_the_null_name_are_unlimited(app: App, timeline: Timeline, name: str) -> None:
    limiter = app.limiter(name)
    for _ in range(100):
        await limiter.record_job_start()
    await limiter.set_next_available_time(timeline.began + timedelta(hours=1))
    assert await limiter.can_proceed()
    assert timeline.at(await limiter.get_next_available_time()) == 0
    assert await limiter.try_acquire() is not None


@pytest.mark.parametrize("name", DECLARED)
def test_the_others_are_an_error_until_they_are_declared(app: App, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        app.limiter(name)
    assert repr(name) in str(caught.value) and "app.limit" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"), [(DECLARED[0], Concurrency(1)), (DECLARED[1], EvenlySpaced(1, per="1m"))], ids=DECLARED
)
async def test_d16_the_others_are_what_the_app_declared_under_the_name(
    app: App, name: str, kind: Concurrency | EvenlySpaced
) -> None:
    app.limit(name, kind, tasks=["step"])
    limiter = app.limiter(name)
    assert (await app.limit_state(name)).kind == kind
    assert await limiter.try_acquire() is not None
    assert await limiter.try_acquire() is None


@pytest.mark.parametrize("name", DECLARED)
async def test_they_can_be_declared_by_asking_with_a_kind(app: App, name: str) -> None:
    app.limiter(name, Rate(1, per="1m"))
    assert await app.limiter(name).try_acquire() is not None
    assert await app.limiter(name).try_acquire() is None


async def test_the_generic_name_given_to_a_worker_limits_nothing(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    async def handler(job: Job[None]) -> None: ...

    await Queue("q", store=app.store).add_many([("t", n) for n in range(5)])
    async with Worker("q", handler, store=app.store, concurrency=5, limiter=app.limiter("jobqueue.limiter")):
        await paceline_time.advance("1s")
    assert timeline.starts() == [0] * 5
