"""Queues that share a limit take turns in a worker: a claim that starts nothing uses no turn of theirs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import accumulate, pairwise

import pytest

from paceline import App, Concurrency, Delay, EvenlySpaced, Rate, Worker
from paceline.limits import Kind

from .helpers import add, called, takes, working

KINDS: list[Kind] = [EvenlySpaced(60, per="1m"), Rate(1, per="1s"), Rate(3, per="3s"), Concurrency(1), Delay("1s")]


async def shares(time, kind: Kind, names: list[str], *, workers: int = 1, **options) -> list[Counter[str]]:
    """How often each queue was served, after each instant with starts; all but that called "empty" have a backlog."""
    app = App(time.store)
    app.limit("service", kind)
    queues = [app.queue(name) for name in names]
    for queue in queues:
        if queue.name != "empty":
            await add(queue, 30)

    async with working(*(Worker(names, takes(time, "1s"), store=time.store, **options) for _ in range(workers))):
        await time.advance("20s")

    served = sorted([(start.at, queue.name) for queue in queues for start in await queue.starts()])
    sums = accumulate((Counter([name]) for _, name in served), Counter.__add__)
    return [total for total, (at, _), (later, _) in zip(sums, served, served[1:], strict=False) if at < later]


def uneven(total: Counter[str], names: list[str]) -> int:
    """How much more often one queue was served than another."""
    served = [total[name] for name in names if name != "empty"]
    return max(served) - min(served)


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c"], ["a", "empty", "c"]], ids="-".join)
@pytest.mark.parametrize("kind", KINDS, ids=called)
async def test_queues_under_one_limit_start_in_turns(time, kind, names, slots):
    sums = await shares(time, kind, names, concurrency=slots)

    assert sums[-1].total() >= 18
    assert max(uneven(total, names) for total in sums) <= 1


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c"]], ids="-".join)
@pytest.mark.parametrize("kind", KINDS, ids=called)
async def test_with_several_workers_each_gives_every_queue_its_turn(time, kind, names):
    sums = await shares(time, kind, names, workers=3)

    assert max(uneven(total, names) for total in sums) <= 3


async def test_a_job_that_arrives_in_an_idle_queue_starts_at_the_next_instant(time):
    app = App(time.store)
    app.limit("service", EvenlySpaced(60, per="1m"))
    bulk, urgent = app.queue("bulk"), app.queue("urgent")
    await add(bulk, 200)

    async with working(Worker(["bulk", "urgent"], takes(time, "10ms"), store=time.store)):
        for _ in range(10):
            await time.advance("7700ms")
            await add(urgent, 2)
        await time.advance("10s")

    waits = [(await job.refresh()) for job in await urgent.list(limit=100)]
    assert len(waits) == 20
    for first, second in pairwise(waits):
        if first.created_at == second.created_at:
            assert first.started_at - first.created_at <= timedelta(seconds=2)
            assert second.started_at - second.created_at <= timedelta(seconds=4)
