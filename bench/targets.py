"""What was promised, beside what was measured: one table, from one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, NamedTuple

from bench.report import Table, laps, short

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


def beside(store: str, name: str, peers: tuple[str, ...], theirs: tuple[str, ...] = (), mine: str = "plain") -> Find:
    """Our speed beside the fastest setting of the peers; `theirs`: their columns, if other ones."""

    def find(measured: Measured) -> Found | None:
        ours = column(measured, "speed", f"{store} ours:{mine}", name)
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
    """One column of ours, as it is."""

    def find(measured: Measured) -> Found | None:
        numbers = column(measured, suite, key, name)
        return Found(pick(numbers), min(numbers), max(numbers)) if numbers else None

    return find


def asked(name: str) -> Find:
    """Our limiter in memory beside `limits` and its moving window."""

    def find(measured: Measured) -> Found | None:
        ours, theirs = (column(measured, "limiters", f"memory {spec}", name) for spec in ("ours", "limits:moving"))
        return ratio(ours, theirs, "limits, moving window") if ours and theirs else None

    return find


def shared(store: str, processes: int) -> Find:
    """What a limit that does not bind costs when so many processes keep it together."""

    def find(measured: Measured) -> Found | None:
        keys = (f"{store} ours:{shape} x{processes}" for shape in ("limit", "plain"))
        return lost(*(column(measured, "shared", key, "drain") for key in keys))

    return find


def deep(store: str, state: str, name: str = "p50", spec: str = "depth") -> Find:
    """A claim of one job in the largest size beside the smallest: the laps of both took turns."""

    def find(measured: Measured) -> Found | None:
        suite = measured.get("flat", {})
        quick = suite.get(f"{store} {spec}:quick") if name == "p50" else None  # too few claims for a p99
        runs = suite.get(f"{store} {spec}") or quick
        if not runs:
            return None
        names = [bed for bed in runs[0]["beds"] if bed.endswith(state)]
        return ratio(laps(runs, names[-1], "1", name), laps(runs, names[0], "1", name), names[-1])

    return find


def least(store: str, what: str, bound: float, find: Find, unit: str = "×") -> Target:
    return Target(store, what, bound, False, unit, find)


def most(store: str, what: str, bound: float, find: Find, unit: str = "×") -> Target:
    return Target(store, what, bound, True, unit, find)


SQLITE = ("litequeue", "huey")
POSTGRES = ("pgqueuer", "procrastinate")
REDIS = ("dramatiq", "taskiq", "saq", "celery")
ADDS = ("single", "together")

COST = "cost of a limit that does not bind"
HELD = "claim while a transaction is held, last beside first, p99"


def memory() -> list[Target]:
    return [
        least("memory", "drain beside pgqueuer", 1.3, beside("memory", "drain", ("pgqueuer",))),
        least("memory", "the same with a limit", 1.3, beside("memory", "drain", ("pgqueuer",), mine="limit")),
        least("memory", "limiter, granted, beside limits", 2, asked("granted")),
        least("memory", "limiter, refused, beside limits", 2, asked("refused")),
        *flat("memory"),
    ]


def sqlite() -> list[Target]:
    return [
        least("sqlite", "drain beside litequeue and Huey", 2, beside("sqlite", "drain", SQLITE)),
        least("sqlite", "adds from 50 tasks beside theirs", 1, beside("sqlite", "together", SQLITE, ADDS)),
        least("sqlite", "bulk adds beside single adds", 10, within("speed", "sqlite ours:plain", "bulk", "single")),
        most("sqlite", COST, 0.3, cost("sqlite"), "%"),
        most("sqlite", "from an add to the start, p50", 5, figure("latency", "sqlite ours:plain", "p50"), "ms"),
        most("sqlite", "from an add to the start, p99", 25, figure("latency", "sqlite ours:plain", "p99"), "ms"),
        *bound("sqlite"),
        *flat("sqlite"),
    ]


def postgres() -> list[Target]:
    return [
        least("postgres", "drain beside pgqueuer", 1.2, beside("postgres", "drain", ("pgqueuer",))),
        least("postgres", "drain beside Procrastinate", 10, beside("postgres", "drain", ("procrastinate",))),
        least("postgres", "adds from 50 tasks beside theirs", 1, beside("postgres", "together", POSTGRES, ADDS)),
        least("postgres", "bulk adds beside theirs", 1, beside("postgres", "bulk", POSTGRES)),
        most("postgres", COST, 0.2, cost("postgres"), "%"),
        most("postgres", "cost of one shared by 8 processes", 0.4, shared("postgres", 8), "%"),
        most("postgres", "from an add to the start, p50", 5, figure("latency", "postgres ours:plain", "p50"), "ms"),
        *bound("postgres"),
        *quiet("postgres"),
        *flat("postgres"),
        most("postgres", "claim, most beside fewest, blocked, p99", 2, deep("postgres", "blocked", "p99")),
        most("postgres", HELD, 2, within("held", "postgres ours:plain", "last99", "first99")),
        most("postgres", f"{HELD}, with a limit", 2, within("held", "postgres ours:limit", "last99", "first99")),
    ]


def redis() -> list[Target]:
    return [
        least("redis", "drain beside Dramatiq, taskiq, SAQ, Celery", 4, beside("redis", "drain", REDIS)),
        least("redis", "adds one by one beside theirs", 1, beside("redis", "single", REDIS)),
        least("redis", "adds from 50 tasks beside theirs", 1, beside("redis", "together", REDIS, ADDS)),
        least("redis", "drain beside BullMQ on Node", 1, beside("redis", "drain", ("bullmq",))),
        least("redis", "bulk adds beside BullMQ on Node", 1, beside("redis", "bulk", ("bullmq",))),
        most("redis", COST, 0.2, cost("redis"), "%"),
        most("redis", "from an add to the start, p50", 2, figure("latency", "redis ours:plain", "p50"), "ms"),
        *bound("redis"),
        *quiet("redis"),
        *flat("redis"),
    ]


def bound(store: str) -> list[Target]:
    """100 starts a second, kept by one and by four processes."""
    found = []
    for count, key in ((1, f"{store} ours:plain"), (4, f"{store} ours:plain x4")):
        who = "1 process" if count == 1 else f"{count} processes"
        found += [
            most(store, f"starts in the worst second of 100, {who}", 100, figure("binding", key, "worst", max), ""),
            most(store, f"and by handlers, {who}", 100, figure("binding", key, "worst_begun", max), ""),
            least(store, f"of that limit used, {who}", 0.97, figure("binding", key, "used"), "%"),
        ]
    return found


def watched(key: str, seconds: int) -> Find:
    """Commands of a blocked worker in so many seconds; a quick run does not watch that long, and says nothing."""

    def find(measured: Measured) -> Found | None:
        long_enough = min(column(measured, "quiet", key, "seconds"), default=0) >= seconds
        return figure("quiet", key, "each")(measured) if long_enough else None

    return find


def quiet(store: str) -> list[Target]:
    key = f"{store} ours:plain x8"
    return [
        most(store, "commands of a blocked worker in 20 s", 3, watched(key, 20), ""),
        most(store, "lateness when the limit opens", 50, figure("quiet", key, "late"), "ms"),
    ]


def flat(store: str) -> list[Target]:
    return [
        most(store, "claim, most jobs and groups beside fewest, ready", 2, deep(store, "ready")),
        most(store, "the same, all but one group blocked", 2, deep(store, "blocked")),
        most(store, "claim, longest window beside shortest", 2, deep(store, "", spec="window")),
    ]


IMPORTS = [
    most("start", "import paceline beside python -c pass", 3, figure("imports", "memory ours", "import_ratio")),
    most("start", "paceline --help beside python -c pass", 5, figure("imports", "memory ours", "help_ratio")),
]
TARGETS = [*memory(), *sqlite(), *postgres(), *redis(), *IMPORTS]


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
        return f"{number:.1%}" if 0.9 < number < 1 else f"{number:.0%}"
    return f"{number:.2f} ×" if unit == "×" else f"{short(number)} {unit}".rstrip()
