"""Six worker processes without kills: limits are used up to what they allow, and whoever is blocked sleeps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from math import ceil
from statistics import median

import pytest

from paceline import App, Limit, Rate

from .checkers import Started, certainly_busy
from .crew import Crew, eventually, until
from .evidence import broken_limits, gather, is_empty, under
from .program import BACKLOG, LIMITS, Producer, micros, monotonic

WORKERS = 6
ROUNDS = 5
ROUND = 5_000_000
ENOUGH = 0.98
"""Of what a rate allows with the guard in force."""
LEAST = 0.97
AMPLE = BACKLOG | {"ten_a_second": 10, "five_a_quarter": 20, "two_at_once": 1, "group_slot": 1}
"""Of what is measured, jobs for a second and more, in case the producer is held up. Of what only slots limit, so few
that workers are idle in between: full use is promised with idle workers."""
SECOND = 1_000_000
SETTLED = 3 * SECOND // 2
"""Whoever has just begun to listen may look once more, a second later, for what came in between."""
RATES = [(name, kind) for name, (kind, scope) in LIMITS.items() if isinstance(kind, Rate) and scope is None]


@pytest.fixture
def alone() -> bool:
    return True


async def test_six_processes_use_at_least_98_percent_of_what_each_rate_allows(app: App, crew: Crew) -> None:
    rates = [(name, in_force(app, rate)) for name, rate in RATES]
    ideals = {name: crew.start("program.py", "tick", "--takes", str(rate.window / SECOND)) for name, rate in rates}
    await crew.ready([*crew.workers(WORKERS), *ideals.values()])
    best = dict.fromkeys(ideals, 0.0)
    producer = Producer(app, AMPLE)
    async with producing(producer):
        for number in range(ROUNDS):
            began = monotonic()
            starts = await one_round(app)
            for name, rate in rates:
                ticks = [note["at"] // 1000 for note in ideals[name].notes("tick") if note["at"] > began]
                used, text = share_used(rate, [start.at for start in under(name, starts)], ticks)
                best[name] = max(best[name], used)
                print(f"round {number + 1}: {name}: {text}")
            if min(best.values()) >= ENOUGH:
                break
    removed = await app.queue().drain()
    await eventually(lambda: is_empty(app))
    found = await gather(app, crew, lease=30 * SECOND)

    assert min(best.values()) >= ENOUGH, best
    assert broken_limits(found.starts, certainly_busy(found.starts, found.end_of, 30 * SECOND)) == []
    assert len(found.starts) == len(found.begun) == len(found.results) == len(producer.accepted) - removed
    assert crew.complaints() == []


async def one_round(app: App) -> list[Started]:
    """The log of starts from now on, for a round and the time that a first start may take."""
    mark = micros((await app.queue("clock").add("look")).created_at)
    await asyncio.sleep(ROUND / SECOND + 1.1)
    starts = [Started(each.job_id, micros(each.at), each.task, each.group) for each in await app.queue().starts()]
    return [start for start in starts if start.at >= mark]


def share_used(rate: Rate, starts: list[int], ticks: list[int]) -> tuple[float, str]:
    """The share of what an ideal limiter starts in the time that begins with the first start; by number and by window.

    The ideal one starts `max` at once and again after each window. A real one that is always late by a little hardly
    shows it in the number of starts of a few seconds: the usual length of its windows does. That one is compared with
    what a sleeper reaches that only ticks: on a machine with more to do than it can, that one is late as well.
    """
    times = sorted(starts)
    counted = sum(at < times[0] + ROUND for at in times)
    ideal = rate.max * ceil(ROUND / rate.window)
    window = median(later - at for at, later in zip(times, times[rate.max :], strict=False))
    possible = median(later - at for at, later in pairwise(ticks))
    windows = (counted - 1) // rate.max
    pace = windows * rate.window / (times[windows * rate.max] - times[0])
    text = (
        f"{counted} of {ideal} starts, pace {pace:.2%}; "
        f"windows of {window / 1000:.1f} ms, one that only ticks {possible / 1000:.1f} ms"
    )
    used = min(counted / ideal, possible / window)
    # With windows of a second, the guard included: at least 97 % of the limit as it was declared.
    declared = (possible - rate.guard_us) / window
    return used if rate.window < SECOND or declared >= LEAST else min(used, declared), text


def in_force(app: App, rate: Rate) -> Rate:
    """A rate with the guard that its store chooses."""
    return rate.in_force(app.store.least_guard)


@contextlib.asynccontextmanager
async def producing(producer: Producer) -> AsyncIterator[None]:
    """Keep a backlog meanwhile."""
    async with asyncio.TaskGroup() as together:
        together.create_task(producer.run())
        try:
            yield
        finally:
            producer.stop()


async def test_workers_that_are_blocked_make_almost_no_calls(app: App, crew: Crew) -> None:
    queue = app.queue(limits=[Limit("one an hour", Rate(1, per="1h"), tasks=["rare"])])
    await queue.pause(task="quiet")
    for name in LIMITS:
        await app.hold(name, for_="1h")
    await crew.ready(crew.workers(WORKERS, "--calls"))
    for task in (*LIMITS, "everything", "rare", "quiet"):
        for group in ("north", "south"):
            await app.tasks[task].using(group=group).enqueue()
    await until(lambda: crew.notes("end"))
    await until(lambda: monotonic() - crew.notes("call")[-1]["at"] > SETTLED * 1000)

    since = monotonic()
    await asyncio.sleep(3)
    calls = [note for note in crew.notes("call") if note["at"] > since]
    print(f"calls of {WORKERS} blocked workers in 3 s: {[note['name'] for note in calls]}")

    # Saying that they live, once in ten seconds, is all they do.
    assert [note["name"] for note in calls if note["name"] != "extend"] == []
    assert max((sum(call["pid"] == member.pid for call in calls) for member in crew.members), default=0) <= 1
    assert len(await queue.starts()) == 1
    await queue.resume(task="quiet")
    await until(lambda: len(crew.notes("end")) == 3)
    crew.terminate(*crew.alive)
    assert [note["insurance"] for note in crew.notes("stopped")] == [0] * WORKERS
    assert crew.complaints() == []


async def test_idle_workers_of_other_processes_hear_of_a_job_within_milliseconds(app: App, crew: Crew) -> None:
    await crew.ready(crew.workers(2))
    took = []
    for number in range(20):
        added_at = monotonic()
        await app.tasks["plain"].enqueue()
        begun = await until(lambda number=number: crew.notes("begin")[number:])
        await until(lambda number=number: crew.notes("end")[number:])
        took.append((begun[0]["at"] - added_at) / 1_000_000)
    took.sort()
    print(f"from before the enqueue to the handler: median {took[10]:.1f} ms, most {took[-1]:.1f} ms")

    # Far from what a machine can do, and far below every fallback that looks from time to time.
    assert took[10] < 50
