"""Histories that once told a store and the model apart, found by `test_model.py` and cut down to what matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.job import Move
from paceline.limits import AllOf, Concurrency, EvenlySpaced, Limit, Rate
from paceline.stores.interface import Outcome

Step = tuple[str, dict[str, Any]]
BOTH = ("q", "r")


@dataclass(frozen=True)
class History:
    says: str
    steps: list[Step]


def declare(*limits: Limit) -> Step:
    return "declare", {"declared": list(limits)}


def insert(*jobs: dict[str, Any]) -> Step:
    return "insert", {"wanted": [(job, False, 0) for job in jobs]}


def job(queue: str, task: str, group: str | None = None, cost: Any = 1, **more: Any) -> dict[str, Any]:
    return {"queue": queue, "task": task, "group": group, "cost": cost, **more}


def claim(slots: int = 1, queues: tuple[str, ...] = BOTH, lease: int = 10_000, tasks: str | None = None) -> Step:
    names = None if tasks is None else frozenset(tasks)
    return "claim", {"queues": queues, "slots": slots, "tasks": names, "worker": "w1", "lease": lease}


def finish(outcome: Outcome, last: int = 0, when_open: bool = False) -> Step:
    """End the run of the last lease, or of the one so many before it."""
    return "finish", {"pick": last, "outcome": outcome, "after": 0, "when_open": when_open, "stale": 1}


def wait(microseconds: int) -> Step:
    return "time_passes", {"by": microseconds}


def acquire(cost: int, how: str = "now or never", lease: int = 10_000) -> Step:
    """A permit under the first limit by name; of group x where it is per group."""
    return "acquire", {"wanted": [(0, "x", cost)], "lease": lease, "how": how}


HISTORIES = [
    History(
        "a queue without groups goes by priority and order, whatever limits its tasks meet",
        [
            declare(Limit("b in q", Rate(4, "20us"), tasks=["b"], queues=["q"])),
            insert(job("q", "a"), job("q", "b"), job("q", "a"), job("q", "b", priority=-1)),
            *[claim(queues=("q",))] * 4,
        ],
    ),
    History(
        "a group whose lane was emptied by a start goes behind the others with its other lanes too",
        [
            declare(Limit("b in q", Rate(4, "20us"), tasks=["b"], queues=["q"])),
            insert(job("q", "a", "x"), job("q", "b", "x"), job("q", "b", "y")),
            claim(3),
        ],
    ),
    History(
        "leases that end together are taken back in the order in which they started",
        [insert(job("r", "b"), job("r", "c", "x")), claim(2, lease=12), wait(61), claim(2)],
    ),
    History(
        "a prolonged lease ends when it was prolonged to, not when it would have ended",
        [
            insert(job("q", "a", "x")),
            claim(lease=12),
            insert(job("q", "a", "y")),
            claim(lease=25),
            ("extend", {"picks": [1], "permit": False, "lease": 60}),
            wait(61),
            claim(),
        ],
    ),
    History(
        "a job that can never fit fails when its group may start something, and not before",
        [
            insert(job("r", "b", "x", {"tenant": 3})),
            declare(Limit("tenant", Rate(1, "5us") & Concurrency(1), by="group")),
            acquire(1, lease=12),
            claim(),
            wait(13),
            claim(),
        ],
    ),
    History(
        "a retry does not wait for a limit that was lowered below the cost of its job",
        [
            declare(Limit("all", Concurrency(2))),
            insert(job("r", "b", cost=2)),
            claim(),
            declare(Limit("all", Rate(1, "20us"))),
            finish(Outcome.RETRY, when_open=True),
            claim(),
        ],
    ),
    History(
        "a retry does not wait for a limit that was dropped",
        [
            declare(Limit("all", Rate(3, "10us")), Limit("r", Rate(1, "5us"), queues=["r"])),
            declare(Limit("ab", Concurrency(3), tasks=["a", "b"])),
            insert(job("q", "a", cost=3)),
            claim(),
            ("drop_a_limit", {"pick": 1}),
            finish(Outcome.RETRY, when_open=True),
            claim(),
        ],
    ),
    History(
        "room that is kept for a big job in one queue is kept from its group in another",
        [
            declare(Limit("tenant", Rate(3, "20us"), by="group")),
            insert(job("r", "c", "x")),
            claim(),
            insert(job("q", "c", "x", 3)),
            claim(),
            insert(job("r", "c", "x")),
            claim(queues=("r",)),
            wait(20),
            claim(2),
        ],
    ),
    History(
        "a big job keeps room wherever it comes to lack it, also later",
        [
            declare(Limit("ab", Rate(4, "5us"), tasks=["a", "b"]), Limit("all", Rate(4, "20us"))),
            insert(job("r", "b", cost=2), job("q", "a", cost=3)),
            claim(2, queues=("r", "q")),
            insert(job("q", "c")),
            ("override", {"pick": 1, "kind": Rate(3, "20us"), "group": None, "for_": 1}),
            claim(),
        ],
    ),
    History(
        "room is kept for one window, also when its job has to wait longer for another limit",
        [
            declare(Limit("ab", Rate(3, "5us"), tasks=["a", "b"]), Limit("r", Rate(3, "20us"), queues=["r"])),
            insert(job("r", "a", cost=2)),
            claim(),
            insert(job("r", "b", cost=3), job("q", "a"), job("q", "b")),
            claim(2, queues=("r", "q")),
            claim(2),
            wait(5),
            claim(2),
        ],
    ),
    History(
        "room that is kept for a big job is kept from permits too, also when it could start by now",
        [
            declare(Limit("all", Rate(4, "20us"))),
            insert(job("q", "a", cost=2)),
            claim(),
            wait(9),
            insert(job("q", "a", cost=4)),
            claim(),
            wait(11),
            acquire(1),
            claim(),
            acquire(1),
        ],
    ),
    History(
        "a big job that was cancelled keeps no room",
        [
            declare(Limit("tenant", Rate(3, "20us"), by="group")),
            insert(job("q", "a", "x")),
            claim(),
            insert(job("q", "a", "x", 3), job("r", "b", "x")),
            claim(),
            ("move", {"picks": [1], "move": Move.CANCEL}),
            acquire(1),
            claim(),
        ],
    ),
    History(
        "a start that is forced early does not open even spacing earlier",
        [
            declare(Limit("all", EvenlySpaced(1, "5us"))),
            insert(job("q", "a", cost=4), job("q", "a")),
            claim(),
            acquire(3, "forced"),
            wait(19),
            claim(),
            wait(1),
            claim(),
        ],
    ),
    History(
        "a key whose maximum was raised shows no more than was started",
        [
            declare(Limit("all", AllOf(Concurrency(2), Rate(2, "20us")))),
            acquire(1),
            declare(Limit("all", Rate(1, "10us"))),
            wait(10),
            acquire(1),
            declare(Limit("all", Rate(3, "20us"))),
            acquire(1),
        ],
    ),
    History(
        "spacing that was changed after a rounded start counts from that start",
        [
            declare(Limit("all", EvenlySpaced(3, "10us"))),
            insert(job("q", "a"), job("q", "a"), job("q", "a")),
            claim(),
            wait(4),
            claim(),
            declare(Limit("all", EvenlySpaced(1, "5us"))),
            wait(4),
            claim(),
            wait(1),
            claim(),
        ],
    ),
]
