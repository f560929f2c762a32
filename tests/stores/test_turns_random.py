"""Turns as a property: between two starts of a group that stays eligible, every other group starts at most once,
and groups that arrive meanwhile go behind it.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from paceline.limits import Concurrency, Limit, Rate
from paceline.stores.interface import Finish, Outcome, Store

from .builders import a_job, claim

FREE = ("free-1", "free-2", "free-3")
"""Groups that no limit ever refuses: they are eligible whenever they have something waiting."""
GATED = tuple(f"gated-{number}" for number in range(8))
"""Groups of tasks under limits, a whole class and each group for itself: blocked and back all the time."""


class History:
    """Who started in which order, and since when each free group has had something waiting without a break."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        self.others: dict[str, Counter[str]] = {}
        self.behind: dict[str, set[str]] = {}

    def added(self, group: str) -> None:
        self.waiting[group] += 1
        if self.waiting[group] > 1:
            return
        for behind in self.behind.values():
            behind.add(group)
        if group in FREE:
            self.watch(group)

    def watch(self, group: str) -> None:
        """From now on it waits for its next turn."""
        self.others[group] = Counter()
        self.behind[group] = set()

    def started(self, group: str) -> None:
        self.waiting[group] -= 1
        for watched, passed in self.others.items():
            if watched != group:
                passed[group] += 1
                assert passed[group] <= 1, f"{group} started {passed[group]} times while {watched} waited for its turn"
                assert group not in self.behind[watched], f"{group} came after {watched} and started before it"
        if group in FREE:
            del self.others[group], self.behind[group]
            if self.waiting[group]:
                self.watch(group)


async def add_some(store: Store, dice: random.Random, history: History) -> None:
    """A few jobs, in one call or one by one."""
    jobs = []
    for _ in range(dice.randint(1, 6)):
        group = dice.choice([*FREE, *GATED, *(f"fresh-{dice.randint(0, 10**9)}" for _ in range(3))])
        task = dice.choice(["rated", "slotted", "plain"]) if group in GATED else "plain"
        jobs.append(a_job(group=group, task=task, priority=dice.randint(-1, 1)))
        history.added(group)
    for some in [jobs] if dice.random() < 0.7 else [[job] for job in jobs]:
        await store.insert(some)


@pytest.mark.parametrize("seed", range(24))
async def test_no_group_starts_twice_while_an_eligible_one_waits_for_its_turn(store, clock, seed):
    dice, history = random.Random(seed), History()
    await store.set_limits(
        [
            Limit("service", Rate(3, per="10s"), tasks=["rated"]),
            Limit("slots", Concurrency(2), tasks=["slotted"]),
            Limit("tenant", Rate(1, per="3s") & Concurrency(1), tasks=["rated", "slotted"], by="group"),
        ]
    )
    running = []

    for _ in range(250):
        step = dice.random()
        if step < 0.35:
            await add_some(store, dice, history)
        elif step < 0.75:
            for job in (await claim(store, slots=dice.randint(1, 3))).jobs:
                history.started(job.group)
                running.append(job)
        elif step < 0.9 and running:
            job = running.pop(dice.randrange(len(running)))
            await store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED)])
        else:
            clock.advance(dice.choice(["1us", "500ms", "3s", "10s"]))
            await store.extend("w", [], 1)

    assert sum(history.waiting.values()) == (await store.counts("line"))["waiting"]
