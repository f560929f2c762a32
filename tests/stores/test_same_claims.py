"""The same asks at the same times start the same jobs on every store, and name the same instant to ask again: workers
with own and shared limiters, limits of queues, tasks and groups, overrides, costs.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from paceline.limits import Concurrency, Delay, EvenlySpaced, Limit, Rate, Unlimited
from paceline.stores import open_store
from paceline.stores.interface import Ask, Claim, Finish, Outcome, Store

from .builders import DAY, SECOND, a_job
from .conftest import ManualClock

LIMITS = [
    Limit("tok", Rate(40, per="1s"), tasks=["t1", "t2"]),
    Limit("gap", Delay("15ms"), tasks=["t2"]),
    Limit("even", EvenlySpaced(8, per="1s"), tasks=["t3"]),
    Limit(
        "tenant",
        Rate(5, per="700ms") & Concurrency(2),
        by="group",
        overrides={"g0": Rate(2, per="500ms"), "g1": Unlimited()},
    ),
    Limit.for_code("shared", Rate(9, per="400ms")),
    Limit("queue", Rate(30, per="1s") & Concurrency(8), queues=["line"]),
    Limit("group", Concurrency(2) & Rate(12, per="1s"), queues=["line"], by="group"),
]
COSTS = [1, 1, 1, 2, {"tok": 3}, {"tok": 7}, {"shared": 2}]


def some_jobs(dice: random.Random, number: int) -> list[Any]:
    return [
        a_job(
            task=dice.choice(["t1", "t2", "t3", "t4"]),
            group=dice.choice([None, *(f"g{place}" for place in range(6))]),
            cost=dice.choice(COSTS),
            priority=dice.choice([0, 0, -1, 3]),
            lifo=dice.random() < 0.1,
        )
        for _ in range(number)
    ]


def some_ask(dice: random.Random, free: int, place: int) -> Ask:
    """What one of six workers asks for: plainly, bounded by a limiter of its own, or together with a shared one."""
    slots = dice.randint(1, max(free, 1))
    changes: dict[str, Any] = {}
    kind = dice.choice(["plain", "own", "shared"])
    if kind == "own":
        changes = {"room": dice.randint(1, 8), "most": dice.choice([6, 8, None])}
    elif kind == "shared":
        changes = {"also": ("shared",)}
    return Ask(queues=("line",), slots=slots, worker=f"w{place}", lease=DAY, **changes)


def decided(claim: Claim) -> tuple[list[str], int, int]:
    return [job.id for job in claim.jobs], claim.needs_room, claim.ask_again_at - claim.now


@pytest.mark.parametrize("seed", range(8))
async def test_every_store_starts_the_same_jobs_at_the_same_times(store: Store, clock: ManualClock, seed: int) -> None:
    dice = random.Random(seed)
    model = open_store("memory://", clock=clock)
    await model.open()
    jobs = some_jobs(dice, 150)
    for each in (model, store):
        await each.set_limits(LIMITS)
        await each.insert(jobs)
    running: list[tuple[Any, Any]] = []
    for step in range(200):
        ask = some_ask(dice, 5, step % 6)
        ends = [running.pop(dice.randrange(len(running))) for _ in range(dice.randint(0, min(3, len(running))))]
        expected = await model.claim(ask, [done(end[0]) for end in ends])
        found = await store.claim(ask, [done(end[1]) for end in ends])
        assert decided(found) == decided(expected), f"at step {step}: {ask}"
        running += zip(expected.jobs, found.jobs, strict=True)
        until = min(expected.ask_again_at, clock.now() + SECOND)
        clock.to(max(dice.choice([clock.now(), clock.now() + dice.randint(1, 60_000), until]), clock.now()))
    await model.close()


def done(job: Any) -> Finish:
    return Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED)


@pytest.mark.parametrize("by", [None, "group"])
async def test_a_cost_whose_interval_ends_after_the_end_of_time_stops_nobody_else(store, by):
    await store.set_limits([Limit("even", EvenlySpaced(1, per="365d"), tasks=["big"], by=by)])
    await store.insert([a_job(f"big-{place}", task="big", group="acme", cost=10**9) for place in range(2)])
    ask = Ask(queues=("line",), slots=2, worker="w", lease=DAY)

    assert [job.id for job in (await store.claim(ask)).jobs] == ["big-0"]
    assert (await store.claim(ask)).jobs == []
    await store.insert([a_job("other", group="acme")])

    assert [job.id for job in (await store.claim(ask)).jobs] == ["other"]
    assert (await store.standing("big-1")).earliest is None
