"""The meters of a file: loaded with the starts they count, and written where they differ."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from paceline.clock import Micros
from paceline.limits.kind import Part
from paceline.limits.memory import Cell, Remembered
from paceline.limits.rate import Window
from paceline.limits.rule import Key
from paceline.stores.sqlite.connect import Database
from paceline.stores.sqlite.meter_rows import LeaseCount, cells_text, idle_from, kind_from, kind_text
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.lanes import PARKED, Keys
from paceline.stores.steps.registry import LaneMeter, Registry

if TYPE_CHECKING:
    from paceline.stores.sqlite.lanes import Lanes

SQL = statements("limits")
LOGS_KEPT = 20_000
"""The logs of so many meters are kept between transactions."""
SLEEPER, LANE = 1, 2
"""Who waits for a finish under a key, as it is written."""


class Stored:
    """What the file has of a meter."""

    __slots__ = ("counted", "generation", "logs", "number", "others", "parked", "place", "revision")

    def __init__(self, number: int) -> None:
        self.number = number
        self.revision = 0
        self.generation = 0
        self.parked = False
        """Some lane under it waits for a finish."""
        self.place = 0
        """The order in which limits were reserved."""
        self.counted: tuple[Any, ...] = ()
        self.others: tuple[Any, ...] = ()
        self.logs: list[tuple[Window, int, Micros, int]] = []
        """Of each log: itself, its edits, the last start that is written, and what was folded then."""


class Meters:
    """The meters that a unit of work has at hand, and what the file has of them."""

    def __init__(
        self, db: Database, space: int, registry: Registry, logs: dict[int, tuple[int, list[Any]]], lanes: Lanes
    ) -> None:
        self.db = db
        self.space = space
        self.registry = registry
        self.stored: dict[LaneMeter, Stored] = {}
        self._numbered: dict[int, LaneMeter | None] = {}
        self._logs = logs
        """Logs by meter and generation: the file continues them, so that only what is new is read."""
        self.complete: set[LaneMeter] = set()
        """Meters of which every lane is at hand."""
        self._absent: set[Key] = set()
        self._lanes = lanes

    # loading

    def load(self, keys: Iterable[Key]) -> None:
        """Bring the meters of these keys; one that nobody has used is not in the file."""
        at_hand = self.registry.meters
        keys = list(keys)
        self._lanes.bring_back([group for _, group in keys])
        wanted = [key for key in dict.fromkeys(keys) if key not in at_hand and key not in self._absent]
        if len(wanted) == 1:
            name, group = wanted[0]
            self._take(self.db.execute(SQL["meter"], (self.space, name, group or "")).fetchall())
        elif wanted:
            pairs = json.dumps([(name, group or "") for name, group in wanted])
            self._take(self.db.execute(SQL["meters"], (pairs, self.space)).fetchall())
        self._absent.update(key for key in wanted if key not in at_hand)

    def load_limit(self, name: str) -> list[LaneMeter]:
        """Bring every meter of a limit."""
        self._lanes.bring_all_back()
        self._take(self.db.execute(SQL["of_limit"], (self.space, name)).fetchall())
        return self.registry.meters_of(name)

    def load_reserved(self) -> None:
        """Bring the meters whose room is kept for somebody, in the order in which they were reserved."""
        rows = self.db.execute(SQL["reserved"], (self.space,)).fetchall()
        self._take(rows)
        for row in rows:
            self.registry.reserved[self.registry.meters[row[16], row[17] or None]] = None

    def by_numbers(self, numbers: Iterable[int]) -> None:
        """Bring the meters that leases are charged to."""
        wanted = [number for number in dict.fromkeys(numbers) if number not in self._numbered]
        if wanted:
            self._take(self.db.execute(SQL["by_numbers"], (json.dumps(wanted),)).fetchall())
            for number in wanted:
                self._numbered.setdefault(number, None)

    def keys_from(self, text: str) -> Keys:
        """The keys of a lease, once they are at hand; those whose limit was dropped since are gone."""
        found = [(self._numbered[number], cost) for number, cost in json.loads(text)]
        keys = [(meter, cost) for meter, cost in found if meter is not None]
        self._lanes.bring_back([meter.key[1] for meter, _ in keys])
        return keys

    def keys_text(self, keys: Keys) -> str:
        return json.dumps([(self.stored[meter].number, cost) for meter, cost in keys if meter in self.stored])

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        registry = self.registry
        new = [row for row in rows if row[0] not in self._numbered and row[16] in registry.limits]
        logs = self._read_logs(new)
        for row in new:
            key = (row[16], row[17] or None)
            meter = LaneMeter(key, kind_from(row[3]), registry.least_guard)
            self._fill(meter, row, logs)
            registry.meters[key] = meter
            registry.by_limit.setdefault(key[0], {})[key] = None
            # An operator's numbers may have run out since the row was written.
            meter.change(registry.kind(*key), registry.beneath(*key))

    def _read_logs(self, rows: list[tuple[Any, ...]]) -> dict[int, list[Any]]:
        """The logs of some meters, brought up to date by what is new in the file."""
        found: dict[int, list[Any]] = {}
        asked: list[tuple[int, int, Micros]] = []
        for number, _, generation, _, _, cells, *_ in rows:
            words = [cell[0] for cell in json.loads(cells)]
            known = self._logs.get(number)
            if known is not None and known[0] == generation and len(known[1]) == len(words):
                logs = known[1]
            else:
                logs = [Window() if word in ("rate", "memory") else None for word in words]
                self._logs[number] = (generation, logs)
            found[number] = logs
            asked += [
                (number, part, log.ats[-1] if log.ats else -1) for part, log in enumerate(logs) if log is not None
            ]
        if len(asked) == 1:
            ((number, part, _),) = asked
            starts = [(number, part, *each) for each in self.db.execute(SQL["spent"], asked[0]).fetchall()]
        else:
            starts = self.db.execute(SQL["spent_by"], (json.dumps(asked),)).fetchall() if asked else []
        for number, part, at, total in starts:
            log = found[number][part]
            if log.ats and log.ats[-1] == at:
                log.cums[-1] = total
            else:
                log.ats.append(at)
                log.cums.append(total)
        return found

    def _fill(self, meter: LaneMeter, row: tuple[Any, ...], logs: dict[int, list[Any]]) -> None:
        """Take over what the file says."""
        number, revision, generation, _, leases, cells, *rest = row
        self.stored[meter] = stored = Stored(number)
        self._numbered[number] = meter
        stored.revision, stored.generation = revision, generation
        meter.leases = LeaseCount(leases)
        meter.hold_until, meter.hold_reason, meter.held_at, meter.refusals, waited_for = rest[:5]
        meter.awaited, stored.parked = bool(waited_for & SLEEPER), bool(waited_for & LANE)
        meter.reserved_by, meter.reserved_until, meter.reserved_deadline, stored.place, meter.open = rest[5:10]
        written = json.loads(cells)
        parts: list[Part] = meter.in_force(meter.kind)
        if len(written) > len(parts):
            # The last one is what earlier kinds counted: its own numbers are written with it.
            parts = [*parts, Remembered(*written[-1][4:])]
        fresh: list[Cell] = []
        for part, log, (_, *numbers) in zip(parts, logs[number], written, strict=True):
            fresh.append((part, part.load(numbers) if log is None else _continued(log, numbers)))
        memory = fresh.pop() if len(fresh) > len(meter.cells) else None
        meter._set_cells(fresh, memory)
        self._note(meter, stored)

    # writing

    def write(self, next_id: Any) -> bool:
        """Write the meters that differ; True when there was one."""
        self._order_reservations(next_id)
        whole, counted, rewritten = [], [], []
        spent: list[tuple[int, int, int, int]] = []
        folded: list[tuple[int, int, int]] = []
        for meter in self.registry.meters.values():
            stored = self.stored.get(meter)
            if stored is None:
                if self._is_blank(meter):
                    continue
                stored = self.stored[meter] = Stored(next_id())
                self._numbered[stored.number] = meter
            parked = any(lane.state is PARKED for lane in meter.lanes)
            parked |= stored.parked and meter not in self.complete
            if stored.counted == _counted(meter) and stored.others == _others(meter) and stored.parked == parked:
                continue
            stored.revision += 1
            if self._is_rewritten(meter, stored):
                stored.generation += 1
                if stored.revision > 1:
                    rewritten.append((stored.number,))
                stored.logs = [(log, log.edits, -1, -1) for _, log in _logs_of(meter)]
                stored.others = ()
            if stored.others != _others(meter) or stored.parked != parked:
                stored.parked = parked
                whole.append(self._row(meter, stored))
            else:
                counted.append((stored.revision, len(meter.leases), cells_text(meter), idle_from(meter), stored.number))
            _starts(meter, stored, spent, folded)
            self._note(meter, stored)
        for name, rows in (
            ("save_counted", counted),
            ("save", whole),
            ("drop_spent", rewritten),
            ("save_spent", spent),
            ("fold_spent", folded),
        ):
            if rows:
                self.db.executemany(SQL[name], rows)
        return bool(whole or counted)

    def settle(self) -> None:
        """The transaction ends."""
        for meter in self.registry.meters.values():
            if isinstance(meter.leases, LeaseCount):
                meter.leases.settle()
            else:
                # It was made in this transaction: from now on the file knows whose leases these are.
                meter.leases = LeaseCount(len(meter.leases))
        self._absent.clear()
        if len(self._logs) > LOGS_KEPT:
            self._logs.clear()

    def _is_blank(self, meter: LaneMeter) -> bool:
        """True when a new one would be the same: nobody has to write it down."""
        held = self.registry.held_limits.get(meter.key[0], (0, None))
        if len(meter.leases) or meter.awaited or meter.refusals or meter.open or meter.reserved_by is not None:
            return False
        if (meter.hold_until, meter.hold_reason) != held or any(lane.state is PARKED for lane in meter.lanes):
            return False
        return all(part.last_start(cell) < 0 for part, cell in meter.kept)

    def _is_rewritten(self, meter: LaneMeter, stored: Stored) -> bool:
        """True when what is written of its starts is not what it begins with: all of it is written once more."""
        logs = _logs_of(meter)
        if len(logs) != len(stored.logs) or stored.revision == 1:
            return True
        return any(
            log is not known or log.edits != edits
            for (_, log), (known, edits, *_) in zip(logs, stored.logs, strict=True)
        )

    def _note(self, meter: LaneMeter, stored: Stored) -> None:
        stored.counted, stored.others = _counted(meter), _others(meter)
        stored.logs = [(log, log.edits, log.ats[-1] if log.ats else 0, log.base) for _, log in _logs_of(meter)]
        logs = [cell if isinstance(cell, Window) else None for _, cell in meter.kept]
        self._logs[stored.number] = (stored.generation, logs)

    def _order_reservations(self, next_id: Any) -> None:
        last = 0
        for meter in self.registry.reserved:
            stored = self.stored.get(meter)
            if stored is None:
                stored = self.stored[meter] = Stored(next_id())
                self._numbered[stored.number] = meter
            if stored.place <= last:
                stored.place = next_id()
                stored.others = ()
            last = stored.place

    def _row(self, meter: LaneMeter, stored: Stored) -> tuple[Any, ...]:
        name, group = meter.key
        waited_for = SLEEPER * meter.awaited + LANE * stored.parked
        hold = (meter.hold_until, meter.hold_reason, meter.held_at, meter.refusals, waited_for)
        reservation = (meter.reserved_by, meter.reserved_until, meter.reserved_deadline, stored.place)
        head = (stored.number, self.space, name, group or "", stored.revision, stored.generation)
        counted = (len(meter.leases), kind_text(meter.kind), cells_text(meter))
        return (*head, *counted, *hold, *reservation, idle_from(meter), meter.open)


def _continued(log: Window, numbers: list[int]) -> Window:
    """A log that was read, with what its meter says of it."""
    log.total, log.base, log.lost_at = numbers[:3]
    cut = bisect_right(log.cums, log.base)
    if cut:
        del log.ats[:cut], log.cums[:cut]
    log.first = 0
    return log


def _logs_of(meter: LaneMeter) -> list[tuple[int, Window]]:
    return [(index, cell) for index, (_, cell) in enumerate(meter.kept) if isinstance(cell, Window)]


def _counted(meter: LaneMeter) -> tuple[Any, ...]:
    """What starts and finishes change."""
    cells = [
        (cell.total, cell.base, cell.lost_at) if isinstance(cell, Window) else part.dump(cell)
        for part, cell in meter.kept
    ]
    return len(meter.leases), cells


def _others(meter: LaneMeter) -> tuple[Any, ...]:
    """Everything else that is written, and the edits of its logs."""
    return (
        meter.kind,
        None if meter.memory is None else meter.memory[0],
        meter.hold_until,
        meter.hold_reason,
        meter.held_at,
        meter.refusals,
        meter.awaited,
        meter.reserved_by,
        meter.reserved_until,
        meter.reserved_deadline,
        meter.open,
        [(id(log), log.edits) for _, log in _logs_of(meter)],
    )


def _starts(
    meter: LaneMeter, stored: Stored, spent: list[tuple[int, int, int, int]], folded: list[tuple[int, int, int]]
) -> None:
    """Which starts are new, and what was folded."""
    for (index, log), (_, _, last, base) in zip(_logs_of(meter), stored.logs, strict=True):
        new = bisect_left(log.ats, last)
        starts = zip(log.ats[new:], log.cums[new:], strict=True)
        spent += [(stored.number, index, at, total) for at, total in starts]
        if base >= 0 and log.base > base:
            folded.append((stored.number, index, log.lost_at))
