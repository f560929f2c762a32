"""A worker that is blocked asks the store a handful of times, whatever blocks it (design 2.5)."""

from __future__ import annotations

import pytest

from paceline import App, Concurrency, EvenlySpaced, Limiter, Rate, Worker

from .helpers import add, nothing, takes, working


@pytest.fixture
def claims(time, monkeypatch) -> list[int]:
    """Grows with every claim."""
    found: list[int] = []
    claim = time.store.claim

    async def counting(ask, finishes=()):
        found.append(time.clock.now())
        return await claim(ask, finishes)

    monkeypatch.setattr(time.store, "claim", counting)
    return found


LIMITERS = {
    "none": lambda app: None,
    "the same limit": lambda app: app.limiter("api"),
    "another one": lambda app: Limiter("other", Rate(3, per="1h"), store=app.store),
    "a kind": lambda app: Rate(3, per="1h"),
    "two kinds": lambda app: Rate(3, per="1h") & Concurrency(2),
    "a spacing": lambda app: EvenlySpaced(1, per="1h"),
}


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("limiter", LIMITERS)
async def test_a_worker_with_a_big_job_in_front_asks_a_handful_of_times(time, claims, limiter, batch):
    app = App(time.store)
    app.limit("api", Rate(3, per="1h"), queues=["line"])
    queue = app.queue("line")
    await queue.add("small")
    await queue.add("big", cost=3)
    await add(queue, 5)
    worker = Worker("line", nothing, store=time.store, concurrency=2, limiter=LIMITERS[limiter](app), batch=batch)

    async with working(worker):
        await time.advance("1s")
        before = len(claims)
        await time.advance("50m")
        asked = len(claims) - before
        await time.advance("10m")

    assert asked <= 50 * 2 + 3  # the insurance wake-up comes every 30 s
    assert [start.task for start in time.starts()] == ["small", "big"]


@pytest.mark.parametrize("what", [{}, {"task": "work"}, {"group": "acme"}], ids=str)
async def test_a_worker_of_something_paused_asks_a_handful_of_times(time, claims, what):
    app = App(time.store)
    app.limit("api", Rate(1, per="1m"))
    queue = app.queue("line")
    await add(queue, 5, group="acme")
    await queue.pause(**what)

    async with working(Worker("line", takes(time, "1s"), store=time.store, limiter=app.limiter("api"))):
        await time.advance("10m")

    assert len(claims) <= 10 * 2 + 3
    assert time.starts() == []
