"""The meters of a file: read when needed, kept between transactions, and brought up to date by what was added since."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.clock import Micros
from paceline.limits import Kind, Rate
from paceline.limits.rate import Window
from paceline.limits.rule import Key, decode_kind, decode_limit, encode_kind, encode_limit
from paceline.stores.interface import Changed, Override
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.registry import LaneMeter, Registry

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

SQL = statements("limits")
SPACE = statements("space")
KEPT = 20_000
"""So many meters stay in memory between transactions."""
_PLAIN = frozenset({"state", "number", "revision", "generation", "saved", "checked", "gone", "closed_until", "changed"})
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

    __slots__ = ("changed", "checked", "generation", "gone", "number", "reserved_place", "revision", "saved", "state")

    def __init__(self, state: SqliteState, key: Key, kind: Kind, number: int) -> None:
        self.state = state
        self.number = number
        self.changed = True  # not yet: marks count from the end of this method on
        self.revision = 0
        self.generation = 0
        self.saved: list[tuple[Micros, int]] = []
        """Of each rate: the last start that is written, and what was folded then."""
        self.checked = 0
        self.gone = False
        self.reserved_place = 0
        super().__init__(key, kind)
        self.leases = LeaseCount(self)
        self.lone = None  # the short way of `acquire` changes cells without a mark
        self.changed = False

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name not in _PLAIN and not self.changed:
            self.mark()

    def mark(self) -> None:
        """Write this meter at the end of the transaction."""
        if not self.changed and not self.gone:
            self.changed = True
            self.state.dirty.meters.append(self)

    def count(self, cost: int, now: Micros) -> None:
        super().count(cost, now)
        self.mark()

    def _set_cells(self, cells: list[tuple[Any, Any]]) -> None:
        super()._set_cells(cells)
        self.lone = None
        # Only a limit with other numbers, or one that forgets, gets new cells: its log is rewritten, not continued.
        self.generation += 1
        self.saved = [(-1, -1)] * len(cells)

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
        self.hold_until, self.hold_reason, self.held_at, self.refusals, awaited = rest[:5]
        self.awaited = bool(awaited)
        self.reserved_by, self.reserved_until, self.reserved_deadline, self.reserved_place = rest[5:]
        self.closed_until = 0
        if not same:
            self.saved = [(-1, -1)] * len(self.cells)
        fresh: list[tuple[Any, Any]] = []
        for index, ((part, old), (_, *numbers)) in enumerate(zip(self.cells, json.loads(cells), strict=True)):
            if isinstance(part, Rate):
                fresh.append((part, self._read_window(index, old if same else Window(), numbers)))
            else:
                fresh.append((part, part.load(numbers)))
                self.saved[index] = (0, 0)
        generation, saved = self.generation, self.saved
        self._set_cells(fresh)
        self.generation, self.saved = generation, saved
        self.changed = False

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
        self.revision += 1
        cells = [
            [part.word, *([cell.total, cell.base, cell.lost_at] if isinstance(part, Rate) else part.dump(cell))]
            for part, cell in self.cells
        ]
        hold = (self.hold_until, self.hold_reason, self.held_at, self.refusals, self.awaited)
        reservation = (self.reserved_by, self.reserved_until, self.reserved_deadline, self.reserved_place)
        head = (self.number, self.state.space, name, group or "", self.revision, self.generation, self.leases.written())  # type: ignore[attr-defined]
        return (*head, _kind_text(self.kind), json.dumps(cells), *hold, *reservation, self._idle_from())

    def _idle_from(self) -> Micros | None:
        if len(self.leases) or self.refusals or self.reserved_by is not None:
            return None
        return max([self.hold_until, *(part.forget_after(cell) for part, cell in self.cells)])

    def write_starts(self) -> None:
        """Add the starts that are new, and drop what was folded."""
        db = self.state.db
        if self.revision > 1 and any(last < 0 for last, _ in self.saved):
            db.execute(SQL["drop_spent"], (self.number,))
        for index, (part, cell) in enumerate(self.cells):
            if not isinstance(part, Rate):
                self.saved[index] = (0, 0)
                continue
            last, base = self.saved[index]
            new = bisect_left(cell.ats, last)
            if new < len(cell.ats):
                rows = zip(cell.ats[new:], cell.cums[new:], strict=True)
                db.executemany(SQL["save_spent"], [(self.number, index, at, total) for at, total in rows])
            if base >= 0 and cell.base > base:
                db.execute(SQL["fold_spent"], (self.number, index, cell.lost_at))
            self.saved[index] = (cell.ats[-1] if cell.ats else 0, cell.base)


class Reserved(dict[LaneMeter, None]):
    """The meters that are kept for somebody, in the order in which they were."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self._state = state

    def __setitem__(self, meter: LaneMeter, value: None) -> None:
        if meter not in self:
            meter.reserved_place = self._state.next_id()  # type: ignore[attr-defined]
        super().__setitem__(meter, value)


class SqliteRegistry(Registry):
    """The limits of a namespace, and the meters that were looked at."""

    def __init__(self, state: SqliteState) -> None:
        super().__init__()
        self.state = state
        self.epoch = 0
        """Grows when others may have changed something: meters are then looked at again before they are used."""
        self.rules_changed = False
        self.reserved: dict[LaneMeter, None] = Reserved(state)
        self._numbered: dict[int, SqliteMeter] = {}

    def forget(self) -> None:
        """Others have written: nothing here may be trusted without a look."""
        self.epoch += 1
        if len(self.meters) > KEPT:
            self.forget_meters()
        for key in [key for key, meter in self.meters.items() if not meter.revision]:  # type: ignore[attr-defined]
            del self.meters[key]
        self.reserved.clear()
        rows = self.state.db.execute(SQL["reserved"], (self.state.space,)).fetchall()
        for meter in [self.meter(name, group or None) for name, group in rows]:
            dict.__setitem__(self.reserved, meter, None)

    def forget_meters(self) -> None:
        """Keep no meter in memory."""
        self.meters.clear()
        self.by_limit.clear()
        self._numbered.clear()

    def read_rules(self) -> None:
        """Take over limits, overrides and holds of whole limits."""
        row = self.state.db.execute(SPACE["rules"], (self.state.space,)).fetchone()
        document = msgspec.json.decode(row[0]) if row else {"limits": [], "overrides": [], "held": {}}
        self.limits = {found["name"]: decode_limit(found) for found in document["limits"]}
        self.overrides = {}
        for found in document["overrides"]:
            kind = decode_kind(found.pop("kind"))
            self.overrides[found["limit"], found["group"]] = Override(kind=kind, **found)
        self.held_limits = {name: (until, reason) for name, (until, reason) in document["held"].items()}
        self._plan_expiry()
        self.forget_meters()

    def write_rules(self) -> None:
        """Write them as one document: they are few, and change together."""
        overrides = [
            {**msgspec.structs.asdict(found), "kind": encode_kind(found.kind)} for found in self.overrides.values()
        ]
        limits = [encode_limit(limit) for limit in self.limits.values()]
        document = {"limits": limits, "overrides": overrides, "held": self.held_limits}
        self.state.db.execute(SPACE["save_rules"], (self.state.space, msgspec.json.encode(document).decode()))
        self.rules_changed = False

    # what changes rules

    def declare(self, limits: Any) -> tuple[list[Changed], bool]:
        before = dict(self.limits)
        changed, widened = super().declare(limits)
        self.rules_changed |= bool(changed) or widened or before != self.limits
        return changed, widened

    def drop(self, name: str) -> bool:
        for meter in self.meters_of(name):
            meter.gone = True  # type: ignore[attr-defined]
        dropped = super().drop(name)
        if dropped:
            self.rules_changed = True
            self.state.db.execute(SQL["drop_all_spent"], (self.state.space, name))
            self.state.db.execute(SQL["drop_all"], (self.state.space, name))
        return dropped

    def override(self, override: Override) -> None:
        super().override(override)
        self.rules_changed = True

    def lift(self, name: str, group: str | None) -> bool:
        lifted = super().lift(name, group)
        self.rules_changed |= lifted
        return lifted

    def hold_all(self, name: str, until: Micros, reason: str | None) -> None:
        super().hold_all(name, until, reason)
        self.rules_changed = True

    def release_all(self, name: str) -> None:
        super().release_all(name)
        self.rules_changed = True

    # meters

    def meter(self, name: str, group: str | None) -> LaneMeter:
        key = (name, group)
        meter: Any = self.meters.get(key)
        if meter is not None and meter.checked == self.epoch:
            return meter  # type: ignore[no-any-return]
        row = self.state.db.execute(SQL["meter"], (self.state.space, name, group or "")).fetchone()
        if row is None:
            if meter is None or meter.revision:
                meter = self.new_meter(key)
        elif meter is None or (row[0], row[1]) != (meter.number, meter.revision):
            if meter is None or _kind_text(meter.kind) != row[3]:
                meter = SqliteMeter(self.state, key, _kind(row[3]), row[0])
            meter.refresh(row)
        self.meters[key] = meter
        self.by_limit.setdefault(name, {})[key] = None
        meter.checked = self.epoch
        # An operator's numbers may have run out since the row was written.
        meter.change(self.kind(name, group))
        return meter  # type: ignore[no-any-return]

    def known(self, key: Key) -> LaneMeter | None:
        meter: Any = self.meters.get(key)
        return meter if meter is not None and meter.checked == self.epoch else None

    def new_meter(self, key: Key) -> LaneMeter:
        meter = SqliteMeter(self.state, key, self.kind(*key), self.state.next_id())
        until, reason = self.held_limits.get(key[0], (0, None))
        if until:
            meter.hold_until, meter.hold_reason = until, reason
        return meter

    def by_number(self, number: int) -> LaneMeter | None:
        """The meter that a lease is charged to; None when its limit was dropped since."""
        known = self._numbered.get(number)
        if known is not None and known.checked == self.epoch:
            return None if known.gone else known
        row = self.state.db.execute(SQL["key"], (number,)).fetchone()
        if row is None or row[0] not in self.limits:
            return None
        meter: SqliteMeter = self.meter(row[0], row[1] or None)  # type: ignore[assignment]
        if meter.number != number:
            return None
        self._numbered[number] = meter
        return meter

    def meters_of(self, name: str) -> list[LaneMeter]:
        rows = self.state.db.execute(SQL["keys"], (self.state.space, name)).fetchall()
        keys = dict.fromkeys([(found, group or None) for found, group in rows])
        keys |= dict.fromkeys(key for key in self.by_limit.get(name, ()) if key in self.meters)
        return [self.meter(*key) for key in keys]

    def forget_idle(self, now: Micros) -> int:
        """Drop meters of groups that a new one could replace."""
        rows = self.state.db.execute(SQL["idle"], (self.state.space, now, 1000)).fetchall()
        forgotten = 0
        for number, name, group in rows:
            meter: Any = self.meter(name, group)
            if meter.forgettable(now) and not meter.lanes:
                meter.gone = True
                self.state.db.execute(SQL["drop_spent"], (number,))
                self.state.db.execute(SQL["drop"], (number,))
                self.meters.pop((name, group), None)
                self.by_limit.get(name, {}).pop((name, group), None)
                forgotten += 1
        return forgotten


@lru_cache(maxsize=1000)
def _kind(text: str) -> Kind:
    return decode_kind(json.loads(text))


def _kind_text(kind: Kind) -> str:
    found = _texts.get(kind)
    if found is None:
        found = _texts[kind] = json.dumps(encode_kind(kind))
    return found


_texts: dict[Any, str] = {}


def moved(cells: str, by: Micros) -> str:
    """The numbers of a meter's kinds with every instant moved."""
    found = json.loads(cells)
    for cell in found:
        if cell[0] == "rate" and cell[2]:
            cell[3] += by  # the youngest start that was folded
        elif cell[0] in ("delay", "spacing") and cell[1] >= 0:
            cell[1] += by  # the last start
    return json.dumps(found)
