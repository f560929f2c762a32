"""Histories that once told a store and the reference apart: a line each in `kept.jsonl`, replayed by every `make test`.

`make soak` adds what it finds, cut down. The steps are kept and not the seed, because a seed means another history as
soon as the generator changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from .drive import Failure
from .words import Step

KEPT = Path(__file__).with_name("kept.jsonl")


class Kept(msgspec.Struct, frozen=True):
    """One history, the store that it was found on, and what differed then."""

    store: str
    seed: int
    differed: str
    steps: list[Step]


def kept() -> list[Kept]:
    return [msgspec.json.decode(line, type=Kept) for line in KEPT.read_bytes().splitlines() if line.strip()]


def keep(failure: Failure, seed: int) -> None:
    """Add a line: one write, so that several processes may add."""
    entry: Any = Kept(failure.store, seed, failure.says.splitlines()[0][:200], failure.steps)
    with KEPT.open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")
