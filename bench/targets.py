"""What was promised, beside what was measured: one table, from one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, NamedTuple

from report import Table, short

Runs = list[dict[str, Any]]
Measured = dict[str, dict[str, Runs]]


class Found(NamedTuple):
    """A figure of ours, what it is compared with, and over the single rounds the range of the figure."""

    value: float
    low: float
    high: float
    beside: str = ""


Find = Callable[[Measured], Found | None]


class Target(NamedTuple):
    """A sentence of a store's promises; `bound` is at least, or at most."""

    store: str
    what: str
    bound: float
    at_most: bool
    unit: str
    find: Find


def ratio(ours: Iterable[float], theirs: Iterable[float], beside: str = "") -> Found:
    """Medians decide; the rounds, each beside its own neighbour, tell how sure it is."""
    mine, other = list(ours), list(theirs)
    rounds = [a / b for a, b in zip(mine, other, strict=False)]
    return Found(median(mine) / median(other), min(rounds), max(rounds), beside)


def column(measured: Measured, suite: str, key: str, name: str) -> list[float]:
    runs = measured.get(suite, {}).get(key, [])
    return [run[name] for run in runs if run.get(name) is not None]


def beside(store: str, name: str, peers: tuple[str, ...], theirs: tuple[str, ...] = ()) -> Find:
    """Our speed without limits beside the fastest setting of the peers; `theirs`: their columns, if other ones."""

    def find(measured: Measured) -> Found | None:
        ours = column(measured, "speed", f"{store} ours:plain", name)
        rivals = [
            (numbers, runs[0]["label"])
            for key, runs in measured.get("speed", {}).items()
            if key.startswith(tuple(f"{store} {peer}:" for peer in peers))
            for each in theirs or (name,)
            if (numbers := column(measured, "speed", key, each))
        ]
        if not ours or not rivals:
            return None
        best, label = max(rivals, key=lambda rival: median(rival[0]))
        return ratio(ours, best, label)

    return find


def within(suite: str, key: str, name: str, other: str) -> Find:
    """One column of ours beside another."""

    def find(measured: Measured) -> Found | None:
        ours, base = column(measured, suite, key, name), column(measured, suite, key, other)
        return ratio(ours, base) if ours and base else None

    return find


def cost(store: str) -> Find:
    """What a limit that does not bind takes from the speed of a drain, as a share."""

    def find(measured: Measured) -> Found | None:
        on, off = (column(measured, "speed", f"{store} ours:{shape}", "drain") for shape in ("limit", "plain"))
        return lost(on, off)

    return find


def lost(on: list[float], off: list[float]) -> Found | None:
    if not on or not off:
        return None
    found = ratio(on, off)
    return Found(1 - found.value, 1 - found.high, 1 - found.low)


def figure(suite: str, key: str, name: str, pick: Callable[[list[float]], float] = median) -> Find:
    def find(measured: Measured) -> Found | None:
        numbers = column(measured, suite, key, name)
        return Found(pick(numbers), min(numbers), max(numbers)) if numbers else None

    return find


def least(store: str, what: str, bound: float, find: Find, unit: str = "×") -> Target:
    return Target(store, what, bound, False, unit, find)


def most(store: str, what: str, bound: float, find: Find, unit: str = "×") -> Target:
    return Target(store, what, bound, True, unit, find)


SQLITE = ("litequeue", "huey")
POSTGRES = ("pgqueuer", "procrastinate")
REDIS = ("dramatiq", "taskiq", "saq", "celery")
ADDS = ("single", "together")

TARGETS = [
    least("memory", "drain beside pgqueuer", 1.3, beside("memory", "drain", ("pgqueuer",))),
    least("sqlite", "drain beside litequeue and Huey", 2, beside("sqlite", "drain", SQLITE)),
    least("sqlite", "adds from 50 tasks beside theirs", 1, beside("sqlite", "together", SQLITE, ADDS)),
    least("sqlite", "bulk adds beside single adds", 10, within("speed", "sqlite ours:plain", "bulk", "single")),
    most("sqlite", "cost of a limit that does not bind", 0.3, cost("sqlite"), "%"),
    least("postgres", "drain beside pgqueuer", 1.2, beside("postgres", "drain", ("pgqueuer",))),
    least("postgres", "drain beside Procrastinate", 10, beside("postgres", "drain", ("procrastinate",))),
    least("postgres", "adds from 50 tasks beside theirs", 1, beside("postgres", "together", POSTGRES, ADDS)),
    least("postgres", "bulk adds beside theirs", 1, beside("postgres", "bulk", POSTGRES)),
    most("postgres", "cost of a limit that does not bind", 0.2, cost("postgres"), "%"),
    least("redis", "drain beside Dramatiq, taskiq, SAQ, Celery", 4, beside("redis", "drain", REDIS)),
    least("redis", "adds one by one beside theirs", 1, beside("redis", "single", REDIS)),
    least("redis", "adds from 50 tasks beside theirs", 1, beside("redis", "together", REDIS, ADDS)),
    least("redis", "drain beside BullMQ on Node", 1, beside("redis", "drain", ("bullmq",))),
    least("redis", "bulk adds beside BullMQ on Node", 1, beside("redis", "bulk", ("bullmq",))),
    most("redis", "cost of a limit that does not bind", 0.2, cost("redis"), "%"),
]


def verdicts(measured: Measured) -> Table:
    """Each target beside what was measured; those whose suite did not run are left out, unless it failed."""
    rows = []
    for target in TARGETS:
        found = target.find(measured)
        if found is None:
            continue
        met = found.value <= target.bound if target.at_most else found.value >= target.bound
        sign = "≤" if target.at_most else "≥"
        rows.append(
            [
                f"{target.store}: {target.what}",
                f"{sign} {_tell(target.bound, target.unit)}",
                _tell(found.value, target.unit),
                f"{_tell(found.low, target.unit)} to {_tell(found.high, target.unit)}",
                "met" if met else "not met",
                found.beside,
            ]
        )
    return Table(["target", "asked", "measured", "rounds", "", "the fastest of them"], rows)


def _tell(number: float, unit: str) -> str:
    if unit == "%":
        return f"{number:.0%}"
    return f"{number:.2f} ×" if unit == "×" else f"{short(number)} {unit}".rstrip()
