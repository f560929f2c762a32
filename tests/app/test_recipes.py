"""D15: runnable twins of the recipes of seed 003, with the numbers they promise as equalities."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from paceline import (
    App,
    Backoff,
    CompositeLimiter,
    Concurrency,
    Delay,
    EvenlySpaced,
    Limiter,
    Queue,
    Rate,
    RateLimited,
    Retry,
    Worker,
)
from paceline.testing import VirtualTime

from .conftest import Timeline


class Service:
    """A handler that takes a while and knows how many ran at once."""

    def __init__(self, time: VirtualTime, takes: str = "1s") -> None:
        self.time = time
        self.takes = takes
        self.running = self.most = self.done = 0

    async def call(self, job: Any = None) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.time.sleep(self.takes)
        self.running -= 1
        self.done += 1


def most_in_any_window(starts: list[float], window: float) -> int:
    return max(sum(1 for other in starts if start <= other < start + window) for start in starts)


# recipe 1: an AI provider


async def test_d15_recipe_1_an_ai_provider_as_a_limit_of_the_app(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit(
        "anthropic",
        Concurrency(5) & Rate(50, per="60s"),
        tasks=["complete"],
        backoff=Backoff(initial="2s", multiplier=2, maximum="120s"),
    )
    service = Service(paceline_time)
    complete = app.task(name="complete")(service.call)
    await complete.enqueue_many([(None,)] * 120)
    async with app.worker(concurrency=20):
        await paceline_time.advance("3m")
    starts = timeline.starts()
    # Five at a time, one second each: 50 in the first ten seconds, then the window opens as it was filled.
    assert starts == [60 * (n // 50) + n % 50 // 5 for n in range(120)]
    assert (service.most, service.done, most_in_any_window(starts, 60)) == (5, 120, 50)


async def test_d15_recipe_1_an_ai_provider_as_a_composite_limiter_of_a_worker(
    paceline_time: VirtualTime, timeline: Timeline
) -> None:
    store = paceline_time.store
    limiter = CompositeLimiter(
        [
            Limiter("anthropic-slots", Concurrency(5), store=store),
            Limiter("anthropic", Rate(50, per="60s"), store=store, backoff=Backoff("2s", 2, "120s")),
        ]
    )
    service = Service(paceline_time)
    queue = Queue("ai", store=store)
    await queue.add_many([("complete", None)] * 120)
    async with Worker("ai", service.call, store=store, concurrency=20, limiter=limiter):
        await paceline_time.advance("3m")
    assert timeline.starts() == [60 * (n // 50) + n % 50 // 5 for n in range(120)]
    assert (service.most, service.done) == (5, 120)


async def test_d15_recipe_1_a_refusal_of_the_provider_backs_off_as_written(
    app: App, paceline_time: VirtualTime, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    app.limit("anthropic", Rate(50, per="60s"), tasks=["complete"], backoff=Backoff("2s", 2, "120s"))
    refusals = 8

    @app.task()
    async def complete() -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise RateLimited.from_response(429, {})

    await complete.enqueue()
    async with app.worker():
        await paceline_time.advance("1h")
    starts = timeline.starts()
    holds = [later - earlier for earlier, later in pairwise(starts)]
    assert holds == [2, 4, 8, 16, 32, 64, 120, 120]


# recipe 2: gentle crawling


@pytest.mark.parametrize("takes", ["1ms", "20s"], ids=["short jobs", "jobs longer than the interval"])
@pytest.mark.parametrize("composite", [False, True], ids=["kinds", "composite"])
async def test_d15_recipe_2_gentle_crawling_is_even_however_long_jobs_take(
    paceline_time: VirtualTime, timeline: Timeline, takes: str, composite: bool
) -> None:
    store = paceline_time.store
    limiter: Any = EvenlySpaced(10, per="60s") & Delay("500ms")
    if composite:
        limiter = CompositeLimiter(
            [
                Limiter("crawl", EvenlySpaced(10, per="60s"), store=store),
                Limiter("crawl-gap", Delay("500ms"), store=store),
            ]
        )
    service = Service(paceline_time, takes)
    queue = Queue("crawl", store=store)
    await queue.add_many([("fetch", n) for n in range(25)])
    async with Worker("crawl", service.call, store=store, concurrency=50, limiter=limiter):
        await paceline_time.advance("5m")
    assert timeline.starts() == [6 * n for n in range(25)]
    assert service.done == 25


# recipe 3: several providers


async def test_d15_recipe_3_several_providers_each_with_its_own_limits(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    openai, ollama = Service(paceline_time), Service(paceline_time, "10s")
    chat = app.task(name="openai", queue="openai")(openai.call)
    local = app.task(name="ollama", queue="ollama")(ollama.call)
    app.queue("openai", limits=[Concurrency(10) & Rate(500, per="60s")])
    app.queue("ollama", limits=[Concurrency(2)])
    await chat.enqueue_many([(None,)] * 600)
    await local.enqueue_many([(None,)] * 20)
    async with app.worker(queues=["openai"], workers=4, concurrency=10), app.worker(queues=["ollama"]):
        await paceline_time.advance("3m")
    starts = timeline.starts("openai")
    assert starts == [60 * (n // 500) + n % 500 // 10 for n in range(600)]
    assert most_in_any_window(starts, 60) == 500
    assert timeline.starts("ollama") == [10 * (n // 2) for n in range(20)]
    assert (openai.most, openai.done, ollama.most, ollama.done) == (10, 600, 2, 20)


# recipe 4: no limit


async def test_d15_recipe_4_without_a_limiter_everything_starts_at_once(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    service = Service(paceline_time)
    await app.task(name="compute", queue="local-compute")(service.call).enqueue_many([(None,)] * 100)
    async with app.worker(workers=8, concurrency=20):
        await paceline_time.advance("1s")
    assert Counter(timeline.starts()) == {0: 100}
    assert (service.most, service.done) == (100, 100)


# the examples around the recipes


async def test_three_workers_share_one_composite_of_slots_and_even_spacing(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = CompositeLimiter([app.limiter("slots", Concurrency(3)), app.limiter("even", EvenlySpaced(30, per="60s"))])
    service = Service(paceline_time, "5s")
    await app.task(name="my-queue", queue="my-queue")(service.call).enqueue_many([(None,)] * 12)
    async with app.worker(workers=3, limiter=limiter):
        await paceline_time.advance("2m")
    assert timeline.starts() == [2 * n for n in range(12)]
    assert (service.most, service.done) == (3, 12)


async def test_a_job_of_an_external_api_asks_to_be_tried_at_the_date_it_was_told(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    answers = [(429, {"Retry-After": "60"}), (200, {})]

    @app.task(attempts=3)
    async def api_job(url: str) -> str:
        status, headers = answers.pop(0)
        if status == 429:
            seconds = int(headers.get("Retry-After", "60"))
            now = paceline_time.now()
            raise Retry(at=datetime.fromtimestamp(now.timestamp() + seconds, UTC), reason="Rate limited by API")
        return "ok"

    job = await api_job.enqueue("https://example.org")
    async with app.worker():
        await paceline_time.advance("2m")
    assert timeline.starts() == [0, 60]
    assert (await job.result(), job.attempts_made) == ("ok", 2)
