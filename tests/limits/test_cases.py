"""The golden cases of `cases.toml`: one line of expectation each, for people and for ports to other languages."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from paceline.clock import NEVER
from paceline.limits.admission import Meter

from .strategies import NAMES

CASES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("cases.toml").read_text())["case"]
QUESTIONS = [case for case in CASES if "opens_at" in case]
DRIVEN = [case for case in CASES if "driven" in case]
WORDS = {"now": 0, "never": NEVER}


def kind_of(text: str) -> Any:
    return eval(text, dict(NAMES))


def says(case: dict[str, Any]) -> str:
    return f"{case['kind']}: {case['says']}"


def replay(case: dict[str, Any]) -> Meter:
    """Bring a meter to where the case begins."""
    meter = Meter(("limit", None), kind_of(case["kind"]))
    steps: list[tuple[int, int, Any]] = []
    for start in case["starts"]:
        at, cost = start if isinstance(start, list) else (start, 1)
        steps.append((at, 0, cost))
    steps += [(at, 1, kind_of(text)) for at, text in case.get("changes", [])]
    for number, (at, is_change, what) in enumerate(sorted(steps, key=lambda step: step[:2])):
        if is_change:
            meter.change(what)
        else:
            meter.charge(f"job {number}", what, at)
    for holder in sorted(meter.leases)[case.get("running", 0) :]:
        meter.leases.discard(holder)
    return meter


@pytest.mark.parametrize("case", QUESTIONS, ids=says)
def test_the_limit_opens_at_the_expected_instant(case: dict[str, Any]) -> None:
    expected = WORDS.get(case["opens_at"], case["opens_at"])
    opens_at = replay(case).opens_at(case.get("cost", 1))
    if case["opens_at"] == "now":
        latest = max([0, *(start[0] if isinstance(start, list) else start for start in case["starts"])])
        assert opens_at <= latest
    else:
        assert opens_at == expected


@pytest.mark.parametrize("case", DRIVEN, ids=says)
def test_driven_at_each_opening_it_starts_at_the_expected_instants(case: dict[str, Any]) -> None:
    meter = Meter(("limit", None), kind_of(case["kind"]))
    starts, now = [], 0
    for number in range(len(case["driven"])):
        now = max(now, meter.opens_at(1))
        meter.charge(f"job {number}", 1, now)
        starts.append(now)
    assert starts == case["driven"]


def test_the_cases_are_told_apart_by_what_they_say() -> None:
    assert len({says(case) for case in CASES}) == len(CASES) >= 40
