"""The world of one random history: queues, tasks, tenants and limits, all from one seed, the same in every process."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from paceline import AllOf, Concurrency, Delay, EvenlySpaced, Group, Limit, Rate, Unique
from paceline.limits import Kind

QUEUES = ("alpha", "beta")
TASKS = ("call", "heavy", "gapped", "even", "free", "mixed")
TENANTS = tuple(f"tenant-{number}" for number in range(5))
LEASE = "5s"
"""Longer than any stop of a process here, so that a lease ends only with its process."""


@dataclass(frozen=True)
class World:
    """What every program of a history declares and adds."""

    limits: dict[str, Limit]

    @classmethod
    def of(cls, seed: int) -> World:
        chance = random.Random(f"world {seed}")
        limits = [
            Limit("api", _rate(chance), tasks=["call", "mixed"]),
            Limit("slots", Concurrency(chance.randint(1, 4)), tasks=["heavy", "mixed"]),
            Limit("gap", Delay(chance.choice(["5ms", "20ms"])), tasks=["gapped"]),
            Limit("even", EvenlySpaced(chance.randint(30, 80), per="1s"), tasks=["even"]),
            Limit("tenant", AllOf(_rate(chance), Concurrency(chance.randint(1, 3))), by="group"),
            Limit("beta", AllOf(_rate(chance), Concurrency(chance.randint(2, 6))), queues=["beta"]),
        ]
        return cls({limit.name: limit for limit in chance.sample(limits, chance.randint(3, len(limits)))})


def other_kind(chance: random.Random, name: str) -> Kind:
    """Other numbers, or another kind, as an operator might set them; generous enough for a history to end."""
    return chance.choice(
        [
            _rate(chance),
            AllOf(_rate(chance), Concurrency(chance.randint(1, 5))),
            Concurrency(chance.randint(1, 5)),
            Delay("8ms"),
            EvenlySpaced(60, per="1s"),
        ]
    )


def random_job(chance: random.Random, number: int) -> tuple[str, Any, dict[str, Any]]:
    """A task, its data (which also says how its run ends) and its options."""
    task = chance.choice(TASKS)
    data = {
        "takes": chance.choice([0, 0, 0.003, 0.02, 0.05]),
        "does": chance.choice(["return"] * 12 + ["raise", "nasty", "retry", "fail", "refused", "note", "huge"]),
    }
    options: dict[str, Any] = {"group": chance.choice([None, *TENANTS])}
    if options["group"] and chance.random() < 0.1:
        options["group"] = Group(options["group"], max_size=200)
    if chance.random() < 0.2:
        options["cost"] = chance.choice([2, 3, {"api": 2}, {"tenant": 2, "beta": 2}])
    if chance.random() < 0.2:
        options["priority"] = chance.randint(-2, 2)
    if chance.random() < 0.1:
        options["lifo"] = True
    if chance.random() < 0.15:
        options["delay"] = chance.choice(["5ms", "100ms", "400ms"])
    if chance.random() < 0.3:
        options |= {"attempts": 3, "retry_delay": chance.choice([None, "20ms"])}
    if chance.random() < 0.05:
        options["unique"] = Unique(key=f"unique-{chance.randint(0, 5)}")
    if chance.random() < 0.05:
        options["job_id"] = f"given-{chance.randint(0, 40)}"
    return task, data, options


def _rate(chance: random.Random) -> Rate:
    return Rate(chance.randint(4, 25), per=chance.choice(["100ms", "200ms", "500ms"]))
