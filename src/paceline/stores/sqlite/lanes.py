"""Lanes, groups and classes of a file: the next few of each are in memory, the rest where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.clock import NEVER, Micros
from paceline.limits import Limit
from paceline.stores.sqlite.heap import LOWEST, Key, PagedHeap
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.lanes import BLOCKED, READY, Group, Lane, LaneClass, LaneState
from paceline.stores.steps.registry import Registry
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.line import SqliteLine

SQL = statements("lanes")
STATES = {state.value: state for state in LaneState}


class SqliteGroup(Group):
    """A group with its row; all its lanes are known."""

    __slots__ = ("line", "marked", "number", "stored")

    def __init__(self, line: SqliteLine, id: str | None, number: int) -> None:
        super().__init__(id)
        self.line = line
        self.number = number
        self.stored = False
        self.marked = False

    def take_turn(self, turn: int, filed: int) -> None:
        super().take_turn(turn, filed)
        self.mark()

    def mark(self) -> None:
        """Write this group at the end of the transaction."""
        if not self.marked:
            self.marked = True
            self.line.state.dirty.groups.append(self)

    def row(self) -> tuple[Any, ...]:
        turn, filed = self.ticket
        return self.number, self.line.number, self.id or "", turn, filed, self.waiting, self.size


class SqliteLane(Lane):
    """A lane of which the first jobs are in memory."""

    __slots__ = ("_state", "ahead", "marked", "number", "stored")

    cls: SqliteClass
    group: SqliteGroup

    def __init__(self, cls: SqliteClass, group: SqliteGroup, number: int, *, stored: bool) -> None:
        self.marked = True
        super().__init__(cls, group)
        self.number = number
        self.stored = stored
        self.ahead: PagedHeap[Row] = PagedHeap(self._read, self._is_here, complete=not stored)
        self.marked = False

    @property
    def state(self) -> LaneState:
        return self._state

    @state.setter
    def state(self, value: LaneState) -> None:
        self._state = value
        if not self.marked:
            self.mark()

    def mark(self) -> None:
        """Write this lane at the end of the transaction, or when lanes are read before."""
        if not self.marked:
            self.marked = True
            self.cls.line.state.dirty.lanes.append(self)

    def row(self) -> tuple[Any, ...]:
        turn, filed = self.group.ticket
        return self.number, self.cls.number, self.group.number, self._state.value, turn, filed, self.until, self.waiting

    def meet(self, registry: Registry) -> None:
        # A lane that is read while limits are being dropped meets them once more when its class is done.
        if all(limit.name in registry.limits for limit in self.cls.group_limits):
            self.look_up_keys(registry)

    def retire(self) -> None:
        del self.group.lanes[self.cls]
        if self.stored:
            self.cls.line.state.dirty.dropped_lanes.append(self.number)
            self.stored = False
        self.number = -1

    # its jobs

    def push(self, row: Row) -> bool:
        key = (row.job.priority, row.order)
        row.lane = self
        row.entry = key
        self.waiting += 1
        self._mark_all()
        self.cls.line.state.dirty.waits[self.number, *key] = row.n  # type: ignore[attr-defined]
        near = self.ahead.push(key, row)
        # Beyond what was read it may still be the first, if those have left: a lane that is shut until then must know.
        return (near or self.waiting == 1 or self._state is BLOCKED) and self.head() is row

    def head(self) -> Row:
        entries = self.ahead.entries
        if entries:
            key, _, row = entries[0]
            if row.entry is key and row.lane is self:
                return row
        top = self.ahead.top()
        assert top is not None, "only asked for lanes with waiting jobs"
        return top[1]

    def remove(self, row: Row) -> None:
        self.cls.line.state.dirty.waits[self.number, row.job.priority, row.order] = None
        row.entry = row.lane = None
        self.waiting -= 1
        self._mark_all()

    def rows(self) -> list[Row]:
        raise NotImplementedError("lanes of a file are moved by the file")

    def _mark_all(self) -> None:
        if not self.marked:
            self.mark()
        if not self.group.marked:
            self.group.mark()

    def _is_here(self, key: Key, row: Row) -> bool:
        return row.lane is self and bool(row.entry == key)

    def _read(self, after: Key) -> tuple[list[tuple[Key, Row]], bool]:
        state = self.cls.line.state
        state.write_waits()
        most = self.cls.line.page
        found = state.db.execute(SQL["waits"], (self.number, *after, most)).fetchall()
        return [self.take(columns) for columns in found], len(found) < most

    def take(self, columns: tuple[Any, ...]) -> tuple[Key, Row]:
        """A waiting job that was read, in its place."""
        row = self.cls.line.state.take_row(columns[1:])
        row.lane = self
        row.entry = key = (row.job.priority, row.order)
        return key, row

    # its place in line

    def make_ready(self) -> None:
        self._state = READY
        if not self.marked:
            self.mark()
        ticket = self.group.ticket
        if self.pushed != ticket:
            # Beyond what was read it has no entry: the file has it, as long as it is ready.
            self.pushed = ticket if self.cls.waiting_line.push(ticket, self) else None

    def file_until(self, until: Micros) -> None:
        self.until = until
        if until >= NEVER:
            for meter in self.meters:
                if not meter.parked:  # type: ignore[attr-defined]
                    meter.parked = True  # type: ignore[attr-defined]
        super().file_until(until)


class LanesOfClass:
    """The lanes of a class by group: each group knows its own."""

    __slots__ = ("_cls",)

    def __init__(self, cls: SqliteClass) -> None:
        self._cls = cls

    def get(self, group: str | None) -> Lane | None:
        found = self._cls.line.groups.get(group)
        return found.lanes.get(self._cls) if found is not None else None

    def __setitem__(self, group: str | None, lane: Lane) -> None:
        """The group takes it."""


class SqliteClass(LaneClass):
    """A class whose lanes are read in the order of their turns."""

    __slots__ = ("line", "marked", "number", "stored", "waiting_line", "waiting_until")

    def __init__(
        self, line: SqliteLine, number: int, signature: tuple[Any, ...], limits: tuple[Limit, ...], *, stored: bool
    ) -> None:
        self.line = line
        self.number = number
        self.stored = stored
        self.marked = False
        super().__init__(signature, limits, line.registry)
        self.lanes: Any = LanesOfClass(self)
        self.read_anew(complete=not stored)

    def read_anew(self, *, complete: bool = False) -> None:
        """Forget which lanes were read."""
        self.waiting_line: PagedHeap[SqliteLane] = PagedHeap(self._read_ready, self._is_ready, complete=complete)
        self.waiting_until: PagedHeap[SqliteLane] = PagedHeap(self._read_blocked, self._is_blocked, complete=complete)

    def mark(self) -> None:
        """Write this class at the end of the transaction: its tasks have changed."""
        if not self.marked:
            self.marked = True
            self.line.state.dirty.classes.append(self)

    def push_blocked(self, until: Micros, lane: Lane) -> None:
        self.waiting_until.push((until, lane.number), lane)  # type: ignore[attr-defined,arg-type]

    def first_ready(self) -> Lane | None:
        entries = self.waiting_line.entries
        if entries:
            ticket, _, lane = entries[0]
            if lane.pushed is ticket and lane._state is READY and lane.waiting:
                return lane
        top = self.waiting_line.top()
        return None if top is None else top[1]

    def next_blocked(self) -> Lane | None:
        top = self.waiting_until.top()
        return None if top is None else top[1]

    def _is_ready(self, ticket: Key, lane: SqliteLane) -> bool:
        if lane.pushed == ticket and lane._state is READY and lane.waiting and lane.number >= 0:
            return True
        if lane.pushed == ticket:
            lane.pushed = None
        return False

    def _is_blocked(self, key: Key, lane: SqliteLane) -> bool:
        return lane.state is BLOCKED and lane.until == key[0] and bool(lane.waiting) and lane.number >= 0

    def _read_ready(self, after: Key) -> tuple[list[tuple[Key, SqliteLane]], bool]:
        found, complete = self._read("ready", after)
        for ticket, lane in found:
            lane.pushed = ticket
        if self.line.page // max(len(found), 1) <= 1:
            self.line.read_heads([lane for _, lane in found if lane.ahead.edge == LOWEST and not lane.ahead.complete])
        return found, complete

    def _read_blocked(self, after: Key) -> tuple[list[tuple[Key, SqliteLane]], bool]:
        return self._read("blocked", after)

    def _read(self, name: str, after: Key) -> tuple[list[tuple[Key, SqliteLane]], bool]:
        state = self.line.state
        state.write_lanes()
        rows = state.db.execute(SQL[name], (self.number, *after, self.line.page)).fetchall()
        self.line.groups.expect(row[3] for row in rows)
        lanes = [((row[1], row[2]), self.line.lanes_by_number[row[0]]) for row in rows]
        return lanes, len(rows) < self.line.page
