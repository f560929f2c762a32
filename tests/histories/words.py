"""What histories are about: queues, tasks, groups, limits and kinds, each under a short name.

A history is a list of steps, and a step is plain data: `["finish", [{"id": "j3", "outcome": "completed"}]]`. So one can
be printed, kept in a file, cut down and driven again, whatever the generator has become meanwhile.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, Kind, Limit, Rate, Unlimited

Step: TypeAlias = list[Any]

START = 1_794_000_000_123_456
"""As late as today: where a clock in doubles would lose its last digits."""
QUEUES, TASKS = ("q", "r", "s"), ("a", "b", "c", "d")
GROUPS = (None, "u", "v", "w", "x", "y", "z")

SCOPES: dict[str, dict[str, Any]] = {
    "all": {},
    "ab": {"tasks": ["a", "b"]},
    "b in q": {"tasks": ["b"], "queues": ["q"]},
    "c": {"tasks": ["c"], "backoff": Backoff("2us", 2, "16us")},
    "r": {"queues": ["r"]},
    "tenant": {"by": "group"},
    "tenant a": {"by": "group", "tasks": ["a"], "overrides": {"z": Rate(4, per="10us")}},
    "tenant q": {"by": "group", "queues": ["q"], "backoff": Backoff("3us", 3, "20us")},
}
"""The limits that may be declared; a name has one scope for ever, only its numbers change."""

KINDS: dict[str, Kind] = {
    "2 per 10": Rate(2, per="10us"),
    "4 per 20 guard 1": Rate(4, per="20us", guard="1us"),
    "12 per 40": Rate(12, per="40us"),
    "40 per 20": Rate(40, per="20us"),
    "1 running": Concurrency(1),
    "3 running": Concurrency(3),
    "gap 1": Delay("1us"),
    "gap 5": Delay("5us"),
    "3 even 20": EvenlySpaced(3, per="20us"),
    "7 even 20": EvenlySpaced(7, per="20us"),
    "unlimited": Unlimited(),
    "3 per 20, 2 running": Rate(3, per="20us") & Concurrency(2),
    "12 per 20, 5 running": AllOf(Concurrency(5), Rate(12, per="20us")),
    "3 per 10, 5 per 40": AllOf(Rate(3, per="10us"), Rate(5, per="40us")),
    "gap 2, 2 running": AllOf(Delay("2us"), Concurrency(2)),
    "3 per 20 guard 7, 5 per 40 guard 2": AllOf(Rate(3, per="20us", guard="7us"), Rate(5, per="40us", guard="2us")),
    "12 per 40, gap 1": AllOf(Rate(12, per="40us", guard="2us"), Delay("1us")),
}

AROUND = (1, 2, 5, 10, 12, 20, 21, 25, 40, 42)
"""The lengths of windows, gaps and leases."""


def limit(name: str, kind: str) -> Limit:
    return Limit(name, KINDS[kind], **SCOPES[name])


def of_groups(name: str) -> bool:
    return "by" in SCOPES[name]
