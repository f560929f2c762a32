"""A queue of a file: its groups, lanes and delayed jobs are read when a claim comes to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from paceline.clock import NEVER, Micros
from paceline.job import DELAYED, WAITING, JobState
from paceline.limits.turns import joins_at
from paceline.stores.interface import StartRecord
from paceline.stores.sqlite.heap import LOWEST, Key, PagedHeap
from paceline.stores.sqlite.lanes import STATES, SqliteClass, SqliteGroup, SqliteLane
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.choosing import Choosing
from paceline.stores.steps.lanes import PAUSED, Group, Keys, Lane, LaneClass
from paceline.stores.steps.line import Line
from paceline.stores.steps.registry import LaneMeter
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

SQL = statements("lanes")
JOBS = statements("jobs")
PAGE = 8
DUE_PAGE = 64
"""Delayed jobs often fall due together: once a page of them was, as many are read as a claim files anyway."""


class Groups:
    """The groups of a queue by name; a group comes with all its lanes."""

    def __init__(self, line: SqliteLine) -> None:
        self._line = line
        self._known: dict[str | None, SqliteGroup | None] = {}
        self.by_number: dict[int, SqliteGroup] = {}

    def get(self, name: str | None) -> SqliteGroup | None:
        if name not in self._known:
            rows = self._line.state.db.execute(SQL["group"], (name or "", self._line.number)).fetchall()
            self._take(rows)
            self._known.setdefault(name, None)
        return self._known[name]

    def __getitem__(self, name: str | None) -> SqliteGroup:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: str | None, group: SqliteGroup) -> None:
        self._known[name] = group
        self.by_number[group.number] = group

    def pop(self, name: str | None, default: None = None) -> None:
        group = self.get(name)
        if group is not None:
            self._known[name] = None
            del self.by_number[group.number]
            if group.stored:
                self._line.state.dirty.dropped_groups.append(group.number)
            group.number = -1

    def expect(self, numbers: Iterable[int]) -> None:
        """Read these groups together."""
        wanted = [number for number in dict.fromkeys(numbers) if number not in self.by_number]
        if wanted:
            rows = self._line.state.db.execute(SQL["groups"], (json.dumps(wanted),)).fetchall()
            self._take(rows)

    def known(self) -> list[SqliteGroup]:
        """Those that are in memory."""
        return list(self.by_number.values())

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        line = self._line
        for number, name, turn, filed, waiting, size, lane, cls, state, until, jobs in rows:
            group = self.by_number.get(number)
            if group is None:
                group = SqliteGroup(line, name or None, number)
                group.turn, group.ticket = turn, (turn, filed)
                group.waiting, group.size, group.stored = waiting, size, True
                self[name or None] = group
            if lane is not None:
                line.take_lane(group, lane, cls, state, until, jobs)


class UniqueKeys:
    """Unique keys of the jobs that have not finished."""

    def __init__(self, line: SqliteLine) -> None:
        self._line = line
        self._known: dict[str, Row | None] = {}

    def get(self, key: str) -> Row | None:
        if key not in self._known:
            state = self._line.state
            row = state.db.execute(JOBS["unique"], (self._line.number, key)).fetchone()
            self._known[key] = state.row_by_number(row[0]) if row else None
        return self._known[key]

    def __setitem__(self, key: str, row: Row) -> None:
        self._known[key] = row
        self._line.state.dirty.unique[self._line.number, key] = row.n  # type: ignore[attr-defined]

    def __delitem__(self, key: str) -> None:
        self._known[key] = None
        self._line.state.dirty.unique[self._line.number, key] = None

    def setdefault(self, key: str, row: Row) -> None:
        if self.get(key) is None:
            self[key] = row


class SqliteLine(Line):
    """One queue and what of it is in memory."""

    groups: Groups  # type: ignore[assignment]
    unique: UniqueKeys  # type: ignore[assignment]

    def __init__(self, state: SqliteState, name: str, number: int) -> None:
        super().__init__(name, state.registry)
        self.state = state
        self.number = number
        self.page = PAGE
        """How many of everything are read at once: as many as the claim wants to start."""
        self.settings_changed = False
        self.groups = Groups(self)
        self.unique = UniqueKeys(self)
        self.lanes_by_number: dict[int, SqliteLane] = {}
        self.classes_by_number: dict[int, SqliteClass] = {}
        self.due: PagedHeap[Row] = PagedHeap(self._read_delayed, self._is_delayed, complete=False)
        self.written: tuple[Any, ...] = ()

    def read(self, virtual_time: int, filings: int, counts: str, settings: str) -> None:
        """Take over what the file says."""
        self.virtual_time, self.filings = virtual_time, filings
        numbers = json.loads(counts)
        self.counts.update({JobState(state): number for state, number in numbers.get("states", {}).items()})
        found = json.loads(settings)
        if found:
            self.paused = found["paused"]
            self.paused_tasks = set(found["tasks"])
            self.paused_groups = set(found["groups"])
            self.tasksets = {frozenset(tasks): number for tasks, number in found["tasksets"]}
        for number, tasks in self.state.db.execute(SQL["classes"], (self.number,)).fetchall():
            names = json.loads(tasks)
            signature, limits = self.signature(names[0])
            cls = SqliteClass(self, number, signature, limits, stored=True)  # type: ignore[arg-type]
            self.classes_by_number[number] = cls
            cls.tasks = set(names)
            cls.waiting = numbers.get("classes", {}).get(str(number), 0)
            # Two classes that rules have just made alike are put together by whoever changed the rules.
            self.classes[signature if signature not in self.classes else (*signature, number)] = cls
            self.class_of_task.update(dict.fromkeys(names, cls))
        self.written = self.numbers()
        self.settings_changed = False

    def numbers(self) -> tuple[Any, ...]:
        """What changes with nearly every start."""
        waiting = [cls.waiting for cls in self.classes.values()]
        return self.virtual_time, self.filings, *self.counts.values(), *waiting

    def row(self) -> tuple[Any, ...]:
        states = {state: number for state, number in self.counts.items() if number}
        classes: dict[int, int] = {cls.number: cls.waiting for cls in self.classes.values()}  # type: ignore[attr-defined]
        numbers = json.dumps({"states": states, "classes": classes})
        return self.virtual_time, self.filings, numbers, self.number

    def settings(self) -> str:
        tasksets = [[sorted(tasks), number] for tasks, number in self.tasksets.items()]
        names = {"tasks": sorted(self.paused_tasks), "groups": sorted(self.paused_groups)}
        return json.dumps({"paused": self.paused, **names, "tasksets": tasksets})

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, value: bool) -> None:
        self._paused = value
        self.settings_changed = True

    # filing

    def new_group(self, id: str | None) -> Group:
        return SqliteGroup(self, id, self.state.next_id())

    def new_lane(self, cls: LaneClass, group: Group) -> Lane:
        lane = SqliteLane(cls, group, self.state.next_id(), stored=False)  # type: ignore[arg-type]
        self.lanes_by_number[lane.number] = lane
        return lane

    def take_lane(self, group: SqliteGroup, number: int, cls: int, state: int, until: Micros, waiting: int) -> None:
        """A lane that was read with its group."""
        home = self.classes_by_number[cls]
        lane = SqliteLane(home, group, number, stored=True)
        lane.marked = True
        lane.state, lane.until, lane.waiting = STATES[state], until, waiting
        lane.marked = False
        lane.ahead.complete = waiting == 0
        group.lanes[home] = lane
        lane.meet(self.registry)
        self.lanes_by_number[number] = lane

    def set_state(self, row: Row, state: JobState) -> None:
        super().set_state(row, state)
        self.state.touch(row)

    def leave(self, row: Row) -> None:
        self._place(row)
        super().leave(row)

    def still_reserves(self, meter: LaneMeter, row: Row, now: Micros) -> bool:
        self._place(row)
        return super().still_reserves(meter, row, now)

    def _place(self, row: Row) -> None:
        """A waiting job that was read by its id learns its lane."""
        if row.state is WAITING and row.lane is None:
            row.lane = self.lane(self.class_for(row.job.task), self.group(row.job.group))
            row.entry = (row.job.priority, row.order)

    def start(self, lane: Lane, row: Row, keys: Keys, choosing: Choosing) -> None:
        super().start(lane, row, keys, choosing)
        self.state.touch(row)

    def read_heads(self, lanes: list[SqliteLane]) -> None:
        """The first job of each of these lanes, in one go."""
        if len(lanes) < 2:
            return
        self.state.write_waits()
        by_number = {lane.number: lane for lane in lanes}
        rows = self.state.db.execute(SQL["heads"], (json.dumps(list(by_number)),)).fetchall()
        for columns in rows:
            lane = by_number[columns[0]]
            lane.ahead.fill([lane.take(columns)], complete=lane.waiting == 1)

    # classes

    def class_for(self, task: str) -> LaneClass:
        known = self.class_of_task.get(task)
        if known is None:
            known = super().class_for(task)
            known.mark()  # type: ignore[attr-defined]
        return known

    def new_class(self, signature: tuple[object, ...], limits: tuple[object, ...]) -> LaneClass:
        cls = SqliteClass(self, self.state.next_id(), signature, limits, stored=False)  # type: ignore[arg-type]
        self.classes_by_number[cls.number] = cls
        return cls

    def reclassify(self) -> None:
        before: dict[int, Any] = {cls.number: cls for cls in self.classes.values()}  # type: ignore[attr-defined]
        super().reclassify()
        for cls in self.classes.values():
            before.pop(cls.number, None)  # type: ignore[attr-defined]
        self.state.dirty.dropped_classes += before
        self.settings_changed = True

    def meet_anew(self, cls: LaneClass) -> None:
        # Lanes look up their keys whenever they are read; only those that were shut must be looked at again.
        numbers = self.state.db.execute(SQL["shut"], {"class": cls.number}).fetchall()  # type: ignore[attr-defined]
        self.groups.expect(number for (number,) in numbers)
        for group in self.groups.known():
            lane = group.lanes.get(cls)
            if lane is not None:
                lane.meet(self.registry)
                if lane.state is not PAUSED and lane.waiting:
                    lane.make_ready()

    def move_out(self, cls: LaneClass) -> None:
        state, number = self.state, cls.number  # type: ignore[attr-defined]
        homes: dict[str, Any] = {task: self.class_for(task) for task in sorted(cls.tasks)}
        state.write_all()
        where = {"class": number, "homes": json.dumps({task: home.number for task, home in homes.items()})}
        paused = json.dumps(sorted(self.paused_groups))
        state.db.execute(SQL["add_homes"], {**where, "ids": state.ids, "paused": paused})
        (taken,) = state.db.execute(SQL["last_lane"]).fetchone()
        state.ids = max(state.ids, taken or 0)
        state.db.execute(SQL["move_waits"], where)
        state.db.execute(SQL["drop_waits"], (number,))
        state.db.execute(SQL["drop_lanes"], (number,))
        for home in dict.fromkeys(homes.values()):
            state.db.execute(SQL["count_lanes"], (home.number,))
            (home.waiting,) = state.db.execute(SQL["count_class"], (home.number,)).fetchone()
            home.mark()
        self.forget_lanes()

    def forget_lanes(self) -> None:
        """Lanes were moved in the file: nothing of them in memory is right any more."""
        self.groups = Groups(self)
        self.lanes_by_number.clear()
        for row in self.state.rows.values():
            if row.job.queue == self.name and row.state is WAITING:
                row.lane = row.entry = None
        for cls in self.classes.values():
            cls.read_anew()  # type: ignore[attr-defined]

    def pause_group(self, group: str, paused: bool) -> None:
        super().pause_group(group, paused)
        self.settings_changed = True

    # delayed jobs

    def delay(self, row: Row) -> None:
        key = (row.due_at, row.order)
        row.entry = key
        self.state.dirty.delayed[self.number, *key] = row.n  # type: ignore[attr-defined]
        self.groups[row.job.group].mark()
        self.due.push(key, row)

    def undelay(self, row: Row) -> None:
        row.entry = None
        self.state.dirty.delayed[self.number, row.due_at, row.order] = None
        self.groups[row.job.group].mark()

    def pop_due(self, now: Micros) -> Row | None:
        if self.next_due() > now:
            return None
        _, row = self.due.top() or (None, None)
        assert row is not None
        self.due.pop()
        self.undelay(row)
        return row

    def next_due(self) -> Micros:
        top = self.due.top()
        return NEVER if top is None else top[0][0]

    def due_but_delayed(self, now: Micros) -> int:
        self.state.write_waits()
        (number,) = self.state.db.execute(SQL["due"], (self.number, now)).fetchone()
        return int(number)

    def _is_delayed(self, key: Key, row: Row) -> bool:
        return row.state is DELAYED and bool(row.entry == key)

    def _read_delayed(self, after: Key) -> tuple[list[tuple[Key, Row]], bool]:
        self.state.write_waits()
        most = self.page if after == LOWEST else max(self.page, DUE_PAGE)
        found = self.state.db.execute(SQL["delayed"], (self.number, *after, most)).fetchall()
        rows: list[tuple[Key, Row]] = []
        for due_at, place, *columns in found:
            row = self.state.take_row(columns)
            row.entry = (due_at, place)
            rows.append(((due_at, place), row))
        return rows, len(found) < most

    # what else the queue remembers

    def groups_waiting(self) -> int:
        self.state.write_all()
        (number,) = self.state.db.execute(SQL["groups_waiting"], (self.number,)).fetchone()
        return int(number)

    def forget_idle_groups(self) -> None:
        self.state.write_all()
        self.state.db.execute(SQL["forget_groups"], (self.number, joins_at(0, self.virtual_time)))
        self.state.outdated = True

    def log_start(self, start: StartRecord) -> None:
        self.state.dirty.starts.append((self.number, self.state.fences + 1, start))

    def move_start(self, row: Row, at: Micros) -> None:
        self.state.db.execute(JOBS["move_start"], (at, self.number, row.fence))

    def drop_start(self, row: Row) -> None:
        self.state.db.execute(JOBS["drop_start"], (self.number, row.fence))

    def starts_since(self, since: Micros | None) -> list[StartRecord]:
        rows = (
            self.state.db.execute(JOBS["starts"], (self.number,))
            if since is None
            else self.state.db.execute(JOBS["starts_since"], (self.number, since))
        )
        return [StartRecord(job, at, task, group, _cost(cost)) for job, at, task, group, cost in rows.fetchall()]

    def forget_starts(self, before: Micros, keep: int) -> None:
        self.state.db.execute(JOBS["forget_starts"], {"queue": self.number, "before": before, "keep": keep})

    def ahead_of(self, row: Row) -> int:
        lane: Any = self.class_for(row.job.task).lanes.get(row.job.group)
        if lane is None:
            return 0
        self.state.write_waits()
        place = (lane.number, row.job.priority, row.order)
        (number,) = self.state.db.execute(SQL["ahead"], place).fetchone()
        return int(number)


def _cost(cost: Any) -> Any:
    return json.loads(cost) if isinstance(cost, str) else cost
