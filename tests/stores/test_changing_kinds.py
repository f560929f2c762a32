"""Limits whose kinds change at random, against an oracle that knows every start: none that still counts is forgotten.

A key knows starts from the first kind on that counts them, until it is forgotten because nothing of it counts.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Limit, Rate, Unlimited
from paceline.limits.memory import Remembered
from paceline.stores.interface import Override, Store, Target

from .builders import SECOND, a_job, ask, ending

GROUPS = ("a", "b")


def a_kind(dice: random.Random) -> Kind:
    def part() -> Kind:
        return dice.choice(
            [
                Rate(dice.randint(1, 6), per=f"{dice.choice([2, 10, 60])}s"),
                Rate(dice.randint(3, 30), per=f"{dice.choice([1, 20])}s"),
                Concurrency(50),
                Unlimited(),
                Delay(f"{dice.choice([1, 5, 30])}s"),
                EvenlySpaced(dice.randint(1, 7), per=f"{dice.choice([1, 10, 60])}s"),
            ]
        )

    return AllOf(part(), part()) if dice.random() < 0.3 else part()


class Key:
    """Every start under one key, and since when kinds of each sort can know of them."""

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []
        self.kind: Kind = Unlimited()
        self.layers: tuple[Kind, ...] = ()
        self.forget()

    def forget(self) -> None:
        self.counted = self.spaced = self.timed = False
        self.known: dict[str, list[tuple[int, int]]] = {"rate": [], "spacing": [], "delay": []}
        self.reach = 0
        self.interval = 0

    def becomes(self, kind: Kind, *beneath: Kind) -> None:
        """These rule from now on, or again when an override ends: both count."""
        if not self.known["delay"]:
            self.forget()
        self.kind = kind
        self.layers = kind, *beneath
        for part in (part for each in self.layers for part in each.parts()):
            self.counted |= isinstance(part, Rate)
            self.spaced |= isinstance(part, Rate | EvenlySpaced)
            self.timed |= not isinstance(part, Concurrency)
            if isinstance(part, EvenlySpaced):
                self.interval = max(self.interval, -(-part.per_us // part.max))
            self.reach = max(self.reach, getattr(part, "window", 0), getattr(part, "gap_us", 0))

    def prune(self, now: int) -> None:
        last, cost = (self.known["delay"] or [(0, 1)])[-1]
        if last + max(self.reach, self.interval * cost) <= now:
            self.forget()
            self.becomes(*self.layers)

    def start(self, at: int, cost: int) -> list[str]:
        """What a start breaks."""
        found = [broken for part in self.kind.parts() if (broken := self._broken(part, at, cost))]
        for word, is_known in (("rate", self.counted), ("spacing", self.spaced), ("delay", self.timed)):
            if is_known:
                self.known[word].append((at, cost))
        return found

    def admits(self, cost: int) -> bool:
        """False for a cost that never fits."""
        return all(cost <= part.max for part in self.kind.parts() if isinstance(part, Rate))

    def _broken(self, part: object, at: int, cost: int) -> str | None:
        if isinstance(part, Rate):
            inside = cost + sum(each for when, each in self.known["rate"] if when > at - part.window)
            return f"{inside} within {part!r}" if inside > part.max else None
        if isinstance(part, Delay) and self.known["delay"]:
            gap = at - self.known["delay"][-1][0]
            return f"{gap} µs under {part!r}" if gap < part.gap_us else None
        if isinstance(part, EvenlySpaced) and self.known["spacing"]:
            last, its_cost = self.known["spacing"][-1]
            return f"{at - last} µs under {part!r}" if (at - last + 1) * part.max < its_cost * part.per_us else None
        return None


class History:
    """One limit, what was said about it, and what each of its keys may still count."""

    def __init__(self, store: Store, clock: Any, dice: random.Random, by: Any) -> None:
        self.store, self.clock, self.dice, self.by = store, clock, dice, by
        self.groups: tuple[str | None, ...] = GROUPS if by else (None,)
        self.keys: dict[str | None, Key] = defaultdict(Key)
        self.declared = a_kind(dice)
        self.own: dict[str, Kind] = {}
        self.said: dict[str | None, tuple[Kind, int | None]] = {}

    def take_in(self) -> None:
        """Every key has the kinds that rule now."""
        for group in [
            each for each, (_, until) in self.said.items() if until is not None and until <= self.clock.now()
        ]:
            del self.said[group]
        for group in self.groups:
            words = [self.said[each][0] for each in dict.fromkeys((group, None)) if each in self.said]
            self.keys[group].becomes(*words, self.own.get(group or "", self.declared))

    async def declare(self) -> None:
        await self.store.set_limits([Limit("all", self.declared, by=self.by, overrides=self.own or None)])

    async def declare_another(self) -> None:
        self.declared = a_kind(self.dice)
        self.own = {"a": a_kind(self.dice)} if self.by and self.dice.random() < 0.5 else {}
        await self.declare()

    async def override(self) -> None:
        group, length = self.dice.choice((None, *self.groups)), self.dice.choice([None, SECOND, 10 * SECOND])
        kind = a_kind(self.dice)
        self.said[group] = kind, None if length is None else self.clock.now() + length
        await self.store.override(Override(limit="all", kind=kind, group=group), length)

    async def lift(self) -> None:
        if self.said:
            group = self.dice.choice(list(self.said))
            del self.said[group]
            await self.store.lift("all", group)

    async def prune(self) -> None:
        for key in self.keys.values() if self.by else ():
            key.prune(self.clock.now())
        await self.store.prune()

    async def acquire(self, permit: str) -> None:
        group = self.dice.choice(self.groups)
        if (await self.store.acquire([Target("all", group)], permit, SECOND)).granted:
            assert self.keys[group].start(self.clock.now(), 1) == [], permit

    async def add_and_claim(self, worker: str) -> int:
        jobs = [a_job(group=self.dice.choice(self.groups), cost=self.dice.choice([1, 1, 2])) for _ in range(2)]
        await self.store.insert([job for job in jobs if self.keys[job.group].admits(job.cost)])
        answer = await self.store.claim(ask(self.dice.randint(1, 6), worker=worker))
        for job in answer.jobs:
            assert self.keys[job.group].start(self.clock.now(), job.cost) == [], worker
        assert await self.store.finish([ending(job) for job in answer.jobs]) == []
        return len(answer.jobs)


@pytest.mark.parametrize(("seed", "by"), [(0, None), (1, "group"), (2, "group"), (3, None), (4, None), (5, "group")])
async def test_no_start_that_counts_is_forgotten_when_kinds_change(store, clock, seed, by):
    dice = random.Random(seed)
    history = History(store, clock, dice, by)
    changes = [history.declare_another, history.override, history.lift, history.prune]
    await history.declare()

    started = 0
    for step in range(150):
        clock.to(clock.now() + dice.choice([0, 1, 1000, SECOND // 2, SECOND, 3 * SECOND, 20 * SECOND]))
        history.take_in()
        if dice.random() < 0.4:
            await dice.choice(changes)()
            history.take_in()
        if dice.random() < 0.1:
            await history.acquire(f"permit {step}")
        else:
            started += await history.add_and_claim(f"worker {step}")

    assert started > 20


def test_what_is_remembered_is_no_kind_that_people_declare() -> None:
    assert Remembered(1, 2, 3).word not in {"rate", "delay", "spacing", "concurrency"}
