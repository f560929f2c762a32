"""Seeds that once went wrong: a line each in `kept.jsonl`, added by `make soak`, driven again by every `make test`."""

from __future__ import annotations

from pathlib import Path

import msgspec

SECONDS = 4.0
"""How long programs are added to, killed and stopped in one history."""
KEPT = Path(__file__).with_name("kept.jsonl")


class Kept(msgspec.Struct, frozen=True):
    """A seed, the store that it went wrong on, and how."""

    store: str
    seed: int
    wrong: str


def kept() -> list[Kept]:
    lines = KEPT.read_bytes().splitlines() if KEPT.exists() else []
    return [msgspec.json.decode(line, type=Kept) for line in lines if line.strip()]


def keep(store: str, seed: int, wrong: str) -> None:
    """Add a line."""
    with KEPT.open("ab") as file:
        file.write(msgspec.json.encode(Kept(store, seed, wrong[:200])) + b"\n")
