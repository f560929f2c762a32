"""The meters of a file: read when needed, kept between transactions, and brought up to date by what was added since."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.clock import Micros
from paceline.limits import Kind, Rate
from paceline.limits.kind import Part
from paceline.limits.memory import Cell, Remembered
from paceline.limits.rate import Window
from paceline.limits.rule import Key, decode_kind, encode_kind
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.registry import LaneMeter

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

SQL = statements("limits")
_json = msgspec.json.encode
_PLAIN = frozenset(
    {
        "whole",
        "state",
        "number",
        "revision",
        "generation",
        "saved",
        "checked",
        "gone",
        "closed_until",
        "changed",
        "guard",
        "least_guard",
    }
)
"""What a meter knows about itself only: no reason to write it."""


class LeaseCount:
    """How many leases live under a key; the leases themselves are rows, and each row knows its keys."""

    __slots__ = ("_seen", "meter", "number")

    def __init__(self, meter: SqliteMeter, number: int = 0) -> None:
        self.meter = meter
        self.number = number
        self._seen: dict[str, bool] = {}
        """Who came and went in this transaction: one that names a key twice holds one lease."""

    def __len__(self) -> int:
        return self.number

    def add(self, holder: str) -> None:
        self._set(holder, True)

    def discard(self, holder: str) -> None:
        self._set(holder, False)

    def _set(self, holder: str, here: bool) -> None:
        if self._seen.get(holder) is not here:
            self._seen[holder] = here
            self.number += 1 if here else -1
            self.meter.mark()

    def written(self) -> int:
        """The number that is written at the end of a transaction."""
        self._seen.clear()
        return self.number


class SqliteMeter(LaneMeter):
    """One key. Every change of an attribute marks it to be written."""

    __slots__ = (
        "changed",
        "checked",
        "generation",
        "gone",
        "number",
        "parked",
        "reserved_place",
        "revision",
        "saved",
        "state",
        "whole",
    )

    def __init__(self, state: SqliteState, key: Key, kind: Kind, number: int) -> None:
        self.state = state
        self.number = number
        self.changed = True  # not yet: marks count from the end of this method on
        self.whole = True
        self.revision = 0
        self.generation = 0
        self.saved: list[tuple[Micros, int]] = []
        """Of each rate: the last start that is written, and what was folded then."""
        self.checked = 0
        self.gone = False
        self.reserved_place = 0
        self.parked = False
        """Some lane under it waits for a finish."""
        super().__init__(key, kind, state.registry.least_guard)
        self.leases = LeaseCount(self)
        self.lone = None  # the short way of `acquire` changes cells without a mark
        self.changed = False

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name not in _PLAIN:
            object.__setattr__(self, "whole", True)
            if not self.changed:
                self.mark()

    def mark(self) -> None:
        """Write this meter at the end of the transaction."""
        if not self.changed and not self.gone:
            self.changed = True
            self.state.dirty.meters.append(self)

    def count(self, cost: int, now: Micros) -> None:
        super().count(cost, now)
        self.mark()

    def take_out(self, cost: int, at: Micros) -> None:
        super().take_out(cost, at)
        self._rewrite_log()

    def begin(self, cost: int, at: Micros) -> None:
        super().begin(cost, at)
        # It may stand before others that are written already.
        self._rewrite_log()

    def _rewrite_log(self) -> None:
        """What is written of its starts is not what it begins with: all of it is written anew."""
        self.generation += 1
        self.saved = [(-1, -1)] * len(self.kept)
        self.whole = True
        self.mark()

    def _set_cells(self, cells: list[Cell], memory: Cell | None = None) -> None:
        super()._set_cells(cells, memory)
        self.lone = None
        # Only a limit with other numbers, or one that forgets, gets new cells.
        self._rewrite_log()

    @property
    def lanes(self) -> Any:
        """The lanes under this key, in whatever queue."""
        return self.state.lanes_under(self) if self.key[1] is not None else ()

    @lanes.setter
    def lanes(self, value: Any) -> None:
        """Lanes are found by their group."""

    # reading

    def refresh(self, row: tuple[Any, ...]) -> None:
        """Take over what the file says."""
        self.changed = True
        number, revision, generation, _, leases, cells, *rest = row
        same = generation == self.generation and number == self.number
        self.number, self.revision, self.generation = number, revision, generation
        self.leases.number = leases  # type: ignore[attr-defined]
        self.hold_until, self.hold_reason, self.held_at, self.refusals, waited_for = rest[:5]
        self.awaited, self.parked = bool(waited_for & 1), bool(waited_for & 2)
        self.reserved_by, self.reserved_until, self.reserved_deadline, self.reserved_place, self.open = rest[5:]
        self.closed_until = 0
        written = json.loads(cells)
        known = self.kept if same else [(part, None) for part in self.in_force(self.kind)]
        if len(written) > len(known):
            # The last one is what earlier kinds counted: its own numbers are written with it.
            known = [*known, (Remembered(*written[-1][4:]), None)]
        saved = self.saved if same else []
        self.saved = saved + [(-1, -1)] * (len(known) - len(saved))
        fresh: list[Cell] = []
        for index, ((part, old), (_, *numbers)) in enumerate(zip(known, written, strict=True)):
            if isinstance(part, Rate):
                fresh.append((part, self._read_window(index, old or Window(), numbers[:3])))
            else:
                fresh.append((part, part.load(numbers)))
                self.saved[index] = (0, 0)
        generation, saved = self.generation, self.saved
        memory = fresh.pop() if len(fresh) > len(self.kind.parts()) else None
        self._set_cells(fresh, memory)
        self.generation, self.saved = generation, saved
        self.changed = self.whole = False

    def _read_window(self, index: int, window: Window, numbers: list[int]) -> Window:
        """Go on from the starts that are known: the log only grows, and is folded from its beginning."""
        last = window.ats[-1] if window.ats else -1
        rows = self.state.db.execute(SQL["spent"], (self.number, index, last)).fetchall()
        if rows and rows[0][0] == last:
            window.cums[-1] = rows.pop(0)[1]
        window.ats += [at for at, _ in rows]
        window.cums += [total for _, total in rows]
        window.total, window.base, window.lost_at = numbers
        cut = bisect_right(window.cums, window.base)
        if cut:
            del window.ats[:cut], window.cums[:cut]
        window.first = 0
        self.saved[index] = (window.ats[-1] if window.ats else 0, window.base)
        return window

    # writing

    def row(self) -> tuple[Any, ...]:
        """Itself as a row."""
        name, group = self.key
        waited_for = self.awaited + 2 * self.parked
        hold = (self.hold_until, self.hold_reason, self.held_at, self.refusals, waited_for)
        reservation = (self.reserved_by, self.reserved_until, self.reserved_deadline, self.reserved_place)
        self.revision += 1
        head = (self.number, self.state.space, name, group or "", self.revision, self.generation)
        self.whole = False
        counted = (self._leases(), kind_text(self.kind), self._cells())
        return (*head, *counted, *hold, *reservation, self._idle_from(), self.open)

    def counted(self) -> tuple[Any, ...]:
        """What starts and finishes change."""
        self.revision += 1
        return self.revision, self._leases(), self._cells(), self._idle_from(), self.number

    def _leases(self) -> int:
        return self.leases.written()  # type: ignore[attr-defined,no-any-return]

    def _cells(self) -> str:
        cells = [
            [part.word, cell.total, cell.base, cell.lost_at, *_own_numbers(part)]
            if isinstance(cell, Window)
            else [part.word, *part.dump(cell)]
            for part, cell in self.kept
        ]
        return _json(cells).decode()

    def _idle_from(self) -> Micros | None:
        if len(self.leases) or self.refusals or self.reserved_by is not None:
            return None
        return max([self.hold_until, *(part.forget_after(cell) for part, cell in self.kept)])

    def write_starts(self, spent: list[tuple[int, int, int, int]], folded: list[tuple[int, int, int]]) -> None:
        """Say which starts are new, and what was folded."""
        if self.revision > 1 and any(last < 0 for last, _ in self.saved):
            self.state.db.execute(SQL["drop_spent"], (self.number,))
        for index, (part, cell) in enumerate(self.kept):
            if not isinstance(part, Rate):
                self.saved[index] = (0, 0)
                continue
            last, base = self.saved[index]
            new = bisect_left(cell.ats, last)
            spent += [
                (self.number, index, at, total) for at, total in zip(cell.ats[new:], cell.cums[new:], strict=True)
            ]
            if base >= 0 and cell.base > base:
                folded.append((self.number, index, cell.lost_at))
            self.saved[index] = (cell.ats[-1] if cell.ats else 0, cell.base)


def _own_numbers(part: Part) -> tuple[int, ...]:
    """What no kind of the limit says of a log any more."""
    return (part.max, part.window, part.spacing) if isinstance(part, Remembered) else ()


@lru_cache(maxsize=1000)
def kind_from(text: str) -> Kind:
    return decode_kind(json.loads(text))


def kind_text(kind: Kind) -> str:
    found = _texts.get(kind)
    if found is None:
        found = _texts[kind] = json.dumps(encode_kind(kind))
    return found


_texts: dict[Any, str] = {}


def moved(cells: str, by: Micros) -> str:
    """The numbers of a meter's kinds with every instant moved."""
    found = json.loads(cells)
    for cell in found:
        if cell[0] in ("rate", "memory") and cell[2]:
            cell[3] += by  # the youngest start that was folded
        elif cell[0] in ("delay", "spacing") and cell[1] >= 0:
            cell[1] += by  # the last start
    return json.dumps(found)
