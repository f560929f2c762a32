"""A meter as a row of the file: its leases, its kinds, and the few numbers they keep."""

from __future__ import annotations

import json
from functools import lru_cache

import msgspec

from paceline.clock import Micros
from paceline.limits import Kind
from paceline.limits.kind import Part
from paceline.limits.memory import Remembered
from paceline.limits.rate import Window
from paceline.limits.rule import decode_kind, encode_kind
from paceline.stores.steps.registry import LaneMeter

_json = msgspec.json.encode


class LeaseCount:
    """How many leases live under a key; the leases themselves are rows, and each row knows its keys."""

    __slots__ = ("_seen", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._seen: dict[str, bool] = {}
        """Who came and went in this transaction: one that names a key twice holds one lease."""

    def __len__(self) -> int:
        return self.number

    def add(self, holder: str, /) -> None:
        self._set(holder, True)

    def discard(self, holder: str, /) -> None:
        self._set(holder, False)

    def _set(self, holder: str, here: bool) -> None:
        if self._seen.get(holder) is not here:
            self._seen[holder] = here
            self.number += 1 if here else -1

    def settle(self) -> None:
        """The transaction ends: whoever holds a lease now is on record."""
        self._seen.clear()


def cells_text(meter: LaneMeter) -> str:
    numbers = [
        [part.word, cell.total, cell.base, cell.lost_at, *_own_numbers(part)]
        if isinstance(cell, Window)
        else [part.word, *part.dump(cell)]
        for part, cell in meter.kept
    ]
    return _json(numbers).decode()


def _own_numbers(part: Part) -> tuple[int, ...]:
    """What no kind of the limit says of a log any more."""
    return (part.max, part.window, part.spacing) if isinstance(part, Remembered) else ()


def idle_from(meter: LaneMeter) -> Micros | None:
    """A new meter would decide the same from then on; None: never."""
    if len(meter.leases) or meter.refusals or meter.reserved_by is not None:
        return None
    return max([meter.hold_until, *(part.forget_after(cell) for part, cell in meter.kept)])


@lru_cache(maxsize=1000)
def kind_from(text: str) -> Kind:
    return decode_kind(json.loads(text))


def kind_text(kind: Kind) -> str:
    return json.dumps(encode_kind(kind))


def moved(cells: str, by: Micros) -> str:
    """The numbers of a meter's kinds with every instant moved."""
    found = json.loads(cells)
    for cell in found:
        if cell[0] in ("rate", "memory") and cell[2]:
            cell[3] += by  # the youngest start that was folded
        elif cell[0] in ("delay", "spacing") and cell[1] >= 0:
            cell[1] += by  # the last start
    return json.dumps(found)
