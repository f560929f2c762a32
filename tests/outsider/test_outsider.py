"""Random programs over the public interface alone, on every store, with an oracle over starts and handlers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paceline import Concurrency, Limit, Rate, Start

from .driver import run_history
from .kept import SECONDS, kept
from .oracle import Evidence, findings, summary
from .places import STORES, place
from .world import World

SEEDS = (1, 2)


def histories() -> list[tuple[str, int]]:
    """The same few on every store, and those that once went wrong."""
    return [(store, seed) for store in STORES for seed in SEEDS] + [(found.store, found.seed) for found in kept()]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("store", "seed"), histories())
def test_nothing_is_wrong_with_a_random_history(store: str, seed: int, tmp_path: Path) -> None:
    logging.getLogger("paceline").setLevel(logging.CRITICAL)
    try:
        wrong = run_history(*place(store, tmp_path), seed, SECONDS, tmp_path)
    finally:
        logging.getLogger("paceline").setLevel(logging.NOTSET)
    assert not wrong, summary(wrong)


# the oracle itself


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(1_000_000_000 + seconds, UTC)


def evidence(limit: Limit, *starts: Start, notes: list[dict[str, object]] | None = None) -> Evidence:
    log = [{"at": 1_000_000_000 + note["when"], "program": 1, **note} for note in notes or []]
    return Evidence(World({limit.name: limit}), log, {"alpha": list(starts), "beta": []}, {}, {})


def start(job: str, seconds: float, cost: int = 1) -> Start:
    return Start(job_id=job, at=at(seconds), task="call", group=None, cost=cost)


def test_the_oracle_sees_a_crowded_window() -> None:
    limit = Limit("api", Rate(2, per="1s"), tasks=["call"])
    assert not findings(evidence(limit, start("a", 0), start("b", 0.5), start("c", 1.0)))
    assert findings(evidence(limit, start("a", 0), start("b", 0.5), start("c", 0.9)))
    assert findings(evidence(limit, start("a", 0), start("b", 0.5, cost=2)))


def test_the_oracle_sees_starts_that_were_forgotten_over_an_override() -> None:
    limit = Limit("api", Rate(2, per="1s"), tasks=["call"])
    notes = [
        {"what": "override", "when": 0.2, "since": 1_000_000_000.19, "kind": "Concurrency(5)", "expires": None},
        {"what": "lift", "when": 0.4, "since": 1_000_000_000.39},
    ]
    notes = [note | {"limit": "api"} for note in notes]
    assert findings(evidence(limit, start("a", 0), start("b", 0.1), start("c", 0.6), notes=notes))
    assert not findings(evidence(limit, start("a", 0), start("b", 0.1), start("c", 1.1), notes=notes))


def test_the_oracle_sees_too_many_at_once() -> None:
    limit = Limit("slots", Concurrency(1), tasks=["call"])
    begin = {"what": "begin", "task": "call", "group": None}
    notes = [
        {**begin, "when": 1.0, "job": "a", "started_at": 1_000_000_001.0},
        {**begin, "when": 1.1, "job": "b", "started_at": 1_000_000_001.1},
        {"what": "end", "when": 1.2, "job": "a", "started_at": 1_000_000_001.0, "error": None},
        {"what": "end", "when": 1.3, "job": "b", "started_at": 1_000_000_001.1, "error": None},
    ]
    assert findings(evidence(limit, start("a", 1.0), start("b", 1.1), notes=notes))


def test_the_oracle_sees_a_start_in_a_pause_and_in_a_hold() -> None:
    limit = Limit("api", Rate(9, per="1s"), tasks=["call"])
    paused = [
        {"what": "pause", "when": 1.0, "since": 1_000_000_000.99, "pause": ["alpha", None, None]},
        {"what": "resume", "when": 2.0, "since": 1_000_000_001.99, "pause": ["alpha", None, None]},
    ]
    assert findings(evidence(limit, start("a", 1.5), notes=paused))
    held = [{"what": "hold", "when": 1.0, "since": 1_000_000_000.99, "limit": "api", "seconds": 0.5}]
    assert findings(evidence(limit, start("a", 1.3), notes=held))


def test_the_oracle_sees_lost_and_repeated_jobs() -> None:
    limit = Limit("api", Rate(9, per="1s"), tasks=["call"])
    added = {"what": "added", "when": 0.1, "since": 1_000_000_000.0, "queue": "alpha", "jobs": ["a"]}
    assert findings(evidence(limit, notes=[added]))
    again = [
        {"what": "begin", "when": 1.0, "job": "a", "task": "call", "group": None, "started_at": 1_000_000_001.0},
        {"what": "end", "when": 1.1, "job": "a", "started_at": 1_000_000_001.0, "error": None},
        {"what": "begin", "when": 2.0, "job": "a", "task": "call", "group": None, "started_at": 1_000_000_002.0},
    ]
    assert findings(evidence(limit, start("a", 1.0), start("a", 2.0), notes=again))
