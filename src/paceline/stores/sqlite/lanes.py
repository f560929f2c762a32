"""Queues, groups and lanes of a file: loaded for a step, and further ones when a claim asks for more."""

from __future__ import annotations

import json
from collections.abc import Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from paceline.clock import Micros
from paceline.job import JobState, NewJob
from paceline.stores.sqlite.statements import statements
from paceline.stores.steps.lanes import BLOCKED, LOWEST, READY, Group, Keys, Lane, LaneClass, LaneState
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.registry import LaneMeter

if TYPE_CHECKING:
    from paceline.stores.sqlite.unit import Unit

SQL = statements("lanes")
STATES = {state.value: state for state in LaneState}
BLOCKED_PAGE = 64
"""Lanes often open together: once one did, so many are read at once."""


class Lanes:
    """Brings queues, groups and lanes to hand; a step that needs more lanes than were foreseen asks for them."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.page = 4
        """How many lanes and jobs are read at once: as many as the claim wants to start."""
        self.spare: dict[str, tuple[list[tuple[QueueState, Group]], list[LaneMeter]]] = {}
        """Groups by name that were at hand in an earlier transaction, with their lanes and meters."""
        self._spare_numbers: dict[int, str] = {}
        self._blocked_from: dict[LaneClass, int] = {}

    def queue(self, name: str) -> QueueState | None:
        """A queue with its classes; None when there is none."""
        found = self.unit.state.queues.get(name)
        if found is None:
            row = self.unit.db.execute(SQL["queue"], (self.unit.space, name)).fetchone()
            if row is not None:
                found = self._take_queue(name, *row)
        return found

    def queues(self, names: Iterable[str]) -> list[QueueState]:
        """Those of some queues that exist."""
        return [queue for queue in map(self.queue, names) if queue is not None]

    def all_queues(self) -> list[QueueState]:
        """Every queue of the namespace, those too that only this step knows."""
        names = [name for (name,) in self.unit.db.execute(SQL["queue_names"], (self.unit.space,)).fetchall()]
        return self.queues(dict.fromkeys([*names, *self.unit.state.queues]))

    def _take_queue(
        self, name: str, number: int, virtual_time: int, filings: int, counts: str, settings: str
    ) -> QueueState:
        unit, registry = self.unit, self.unit.state.registry
        queue = QueueState(name, registry)
        queue.virtual_time, queue.filings = virtual_time, filings
        numbers = json.loads(counts)
        queue.counts.update({JobState(state): number for state, number in numbers.get("states", {}).items()})
        found = json.loads(settings)
        if found:
            queue.paused = found["paused"]
            queue.paused_tasks, queue.paused_groups = set(found["tasks"]), set(found["groups"])
            queue.tasksets = {frozenset(tasks): number for tasks, number in found["tasksets"]}
        rows = [(n, json.loads(tasks)) for n, tasks in unit.db.execute(SQL["classes"], (number,)).fetchall()]
        self.shared_meters(name, [task for _, tasks in rows for task in tasks])
        waiting = numbers.get("classes", {})
        for n, tasks in rows:
            signature, limits = queue.signature(tasks[0])
            cls = LaneClass(signature, limits, registry)
            cls.tasks, cls.waiting = set(tasks), waiting.get(str(n), 0)
            self.keep_elsewhere(cls)
            unit.numbers[cls] = n
            unit.classes[n] = cls
            # Two classes that rules have just made alike are put together by whoever changed the rules.
            queue.classes[signature if signature not in queue.classes else (*signature, n)] = cls
            queue.class_of_task.update(dict.fromkeys(tasks, cls))
        unit.state.queues[name] = queue
        unit.took_queue(queue, number)
        return queue

    def keep_elsewhere(self, cls: LaneClass) -> None:
        """None of the lanes of a class is at hand."""
        cls.source = self
        cls.ready_edge = LOWEST if cls.waiting else None
        cls.blocked_edge = -1 if cls.waiting else None

    def shared_meters(self, queue: str, tasks: Iterable[str]) -> None:
        """The meters that every job of these tasks meets."""
        meeting = self.unit.state.registry.meeting
        met = [limit for task in dict.fromkeys(tasks) for limit in meeting(queue, task)]
        self.unit.meters.load((limit.name, None) for limit in met if limit.by is None)

    def group_meters(self, queue: str, jobs: Iterable[NewJob]) -> None:
        """The meters of their groups that these jobs meet."""
        meeting = self.unit.state.registry.meeting
        asked = dict.fromkeys((job.task, job.group) for job in jobs if job.group is not None)
        met = [(limit, group) for task, group in asked for limit in meeting(queue, task) if limit.by == "group"]
        if met:
            self.unit.meters.load((limit.name, group) for limit, group in met)

    def groups(self, queue: QueueState, names: Iterable[str | None]) -> None:
        """Groups by name, each with all its lanes."""
        number = self.unit.numbers.get(queue)
        names = list(dict.fromkeys(names))
        self.bring_back(names)
        wanted = [name or "" for name in names if name not in queue.groups]
        if number is not None and wanted:
            if len(wanted) == 1:
                rows = self.unit.db.execute(SQL["group"], (wanted[0], number)).fetchall()
            else:
                rows = self.unit.db.execute(SQL["groups_named"], (json.dumps(wanted), number)).fetchall()
            self._take_groups(queue, rows)

    def groups_numbered(self, queue: QueueState, numbers: Iterable[int]) -> None:
        """Groups by their numbers, each with all its lanes."""
        taken = self.unit.groups
        numbers = list(numbers)
        if self.spare:
            self.bring_back([self._spare_numbers.get(number) for number in numbers])
        wanted = [number for number in dict.fromkeys(numbers) if number not in taken]
        if wanted:
            self._take_groups(queue, self.unit.db.execute(SQL["groups"], (json.dumps(wanted),)).fetchall())

    def _take_groups(self, queue: QueueState, rows: list[tuple[Any, ...]]) -> list[Lane]:
        unit, registry = self.unit, self.unit.state.registry
        # One that was dropped in this step is in the file until the step is written.
        rows = [row for row in rows if row[0] not in unit.groups]
        keys = [
            (limit.name, row[1])
            for row in rows
            if row[1] and row[7] is not None
            for limit in unit.classes[row[7]].group_limits
        ]
        if keys:
            unit.meters.load(keys)
        lanes: list[Lane] = []
        for number, name, turn, filed, waiting, size, lane_number, class_number, state, until, jobs in rows:
            group = unit.groups.get(number)
            if group is None:
                group = queue.groups[name or None] = Group(name or None)
                group.take_turn(turn, filed)
                group.waiting, group.size = waiting, size
                unit.took_group(queue, group, number)
            if lane_number is not None:
                cls = unit.classes[class_number]
                lane = cls.lanes[group.id] = group.lanes[cls] = Lane(cls, group)
                if all(limit.name in registry.limits for limit in cls.group_limits):
                    # A class of a limit that is being dropped is about to be split.
                    lane.meet(registry)
                lane.state, lane.until, lane.waiting = STATES[state], until, jobs
                lane.edge = LOWEST if jobs else None
                self._line_up(lane)
                unit.took_lane(lane, lane_number)
                lanes.append(lane)
        return lanes

    def set_aside(self) -> None:
        """Let go of groups without forgetting them; what is reserved for somebody stays."""
        unit, registry = self.unit, self.unit.state.registry
        kept = {None, *(meter.key[1] for meter in registry.reserved)}
        for queue in unit.state.queues.values():
            for name, group in list(queue.groups.items()):
                if name is not None and name not in kept:
                    self.spare.setdefault(name, ([], []))[0].append((queue, group))
                    del queue.groups[name]
                    number = unit.numbers[group]
                    self._spare_numbers[number] = name
                    del unit.groups[number]
            for cls in queue.classes.values():
                cls.lanes = {name: lane for name, lane in cls.lanes.items() if name in kept}
                cls.ready, cls.blocked = [], []
                self.keep_elsewhere(cls)
                for lane in cls.lanes.values():
                    self._line_up(lane)
        for key, meter in list(registry.meters.items()):
            if key[1] is not None and key[1] not in kept:
                self.spare.setdefault(key[1], ([], []))[1].append(meter)
                del registry.meters[key], registry.by_limit[key[0]][key]
        unit.meters.complete.clear()
        self._blocked_from.clear()

    def bring_back(self, names: Iterable[str | None]) -> None:
        """Have groups that were set aside at hand again."""
        if not self.spare:
            return
        unit, registry = self.unit, self.unit.state.registry
        for name in names:
            groups, meters = self.spare.pop(name or "", ((), ()))
            for queue, group in groups:
                queue.groups[group.id] = group
                number = unit.numbers[group]
                unit.groups[number] = group
                del self._spare_numbers[number]
                for cls, lane in group.lanes.items():
                    cls.lanes[group.id] = lane
                    self._line_up(lane)
            for meter in meters:
                registry.meters[meter.key] = meter
                registry.by_limit.setdefault(meter.key[0], {})[meter.key] = None

    def bring_all_back(self) -> None:
        """Have everything at hand that was set aside."""
        self.bring_back(list(self.spare))

    def _line_up(self, lane: Lane) -> None:
        """Let a lane be found by its class."""
        lane.pushed = None
        if lane.waiting and lane.state is READY:
            lane.make_ready()
        elif lane.waiting and lane.state is BLOCKED:
            lane.cls.push_blocked(lane.until, lane)

    def lanes_under(self, meters: Iterable[LaneMeter]) -> None:
        """Every lane under these keys, in whatever queue: those of the groups they are about."""
        complete = self.unit.meters.complete
        wanted = [meter for meter in meters if meter.key[1] is not None and meter not in complete]
        if wanted:
            names = json.dumps(list(dict.fromkeys(meter.key[1] for meter in wanted)))
            by_queue: dict[str, list[str]] = {}
            for queue, group in self.unit.db.execute(SQL["of_groups"], (names, self.unit.space)).fetchall():
                by_queue.setdefault(queue, []).append(group)
            for name, groups in by_queue.items():
                self.groups(self.known(name), groups)
            complete.update(wanted)

    def limit(self, name: str) -> None:
        """Every meter of a limit, and every lane under them."""
        self.lanes_under(self.unit.meters.load_limit(name))

    def expired(self, now: Micros) -> None:
        """What an operator's numbers were about whose time is over: the step lifts them."""
        registry = self.unit.state.registry
        if now >= registry.next_expiry:
            for (name, _), found in registry.overrides.items():
                if found.expires_at is not None and found.expires_at <= now:
                    self.limit(name)

    def to_reclassify(self, queues: list[QueueState]) -> None:
        """What putting tasks into other classes is about: every shared meter, and lanes that are shut."""
        unit, registry = self.unit, self.unit.state.registry
        if not queues:
            return
        self.bring_all_back()
        unit.meters.load((limit.name, None) for limit in registry.limits.values() if limit.by is None)
        for queue in queues:
            for cls in queue.classes.values():
                shut = unit.db.execute(SQL["shut"], {"class": unit.numbers[cls]}).fetchall()
                self.groups_numbered(queue, [number for (number,) in shut])
        names = {group for queue in queues for group in queue.groups if group is not None}
        by_group = [limit.name for limit in registry.limits.values() if limit.by == "group"]
        unit.meters.load((limit, group) for limit in by_group for group in names)

    def parked_under(self, keys: Keys) -> None:
        """The lanes that wait for a finish under these keys."""
        if not keys:
            return
        stored = self.unit.meters.stored
        self.lanes_under(meter for meter, _ in keys if meter in stored and stored[meter].parked)

    def known(self, name: str) -> QueueState:
        found = self.queue(name)
        assert found is not None, "it was found in the same transaction"
        return found

    def more_lanes(self, cls: LaneClass) -> None:
        edge = cls.ready_edge or LOWEST
        rows = self.unit.db.execute(SQL["ready"], (self.unit.numbers[cls], *edge, self.page)).fetchall()
        cls.ready_edge = (rows[-1][1], rows[-1][2]) if len(rows) == self.page else None
        self._bring(cls, rows)

    def more_blocked(self, cls: LaneClass) -> None:
        page = 1 if cls.blocked_edge == -1 else BLOCKED_PAGE
        edge = (cls.blocked_edge, self._blocked_from.get(cls, -1))
        rows = self.unit.db.execute(SQL["blocked"], (self.unit.numbers[cls], *edge, page)).fetchall()
        cls.blocked_edge = rows[-1][1] if len(rows) == page else None
        if rows:
            self._blocked_from[cls] = rows[-1][0]
        self._bring(cls, rows)

    def _bring(self, cls: LaneClass, rows: list[tuple[Any, ...]]) -> None:
        """The lanes of some rows of a class come to hand, with their groups in every queue of the claim."""
        queue = self.unit.queue_of[cls]
        self.groups_numbered(queue, [row[3] for row in rows])
        others = self.unit.asked_queues
        if len(others) > 1 and cls.group_limits:
            names = [self.unit.groups[row[3]].id for row in rows]
            for other in others:
                if other is not queue:
                    self.groups(other, names)

    def _heads(self, lanes: list[Lane]) -> None:
        """The first job of each of these lanes."""
        by_number = {self.unit.numbers[lane]: lane for lane in lanes}
        found = self.unit.db.execute(SQL["heads"], (json.dumps(list(by_number)),)).fetchall()
        self.unit.loader.take_rows(columns[1:] for columns in found)
        for columns in found:
            lane = by_number.pop(columns[0])
            self.unit.loader.place_found(lane, columns[1])
            all_at_hand = lane.waiting == 1 and self.unit.by_n[columns[1]].lane is lane
            lane.edge = None if all_at_hand else (columns[6], columns[7])
        for lane in by_number.values():
            lane.edge = None

    def more_jobs(self, lane: Lane) -> None:
        ready = [other for other in lane.cls.lanes.values() if other.state is READY and other.waiting]
        page = -(-self.page // max(len(ready), 1))
        if page == 1 and lane.edge == LOWEST:
            # Each of them will be asked for one job, in the order of their turns.
            unread = [other for other in ready if other.edge == LOWEST and other is not lane]
            self._heads([lane, *nsmallest(self.page, unread, key=lambda other: other.group.ticket)])
            return
        number = self.unit.numbers[lane]
        found = self.unit.db.execute(SQL["waits"], (number, *(lane.edge or LOWEST), page)).fetchall()
        self.unit.loader.take_rows(found)
        for columns in found:
            self.unit.loader.place_found(lane, columns[0])
        lane.edge = (found[-1][5], found[-1][6]) if len(found) == page else None

    def split(self, cls: LaneClass) -> None:
        """Move the jobs of a class in the file: there may be millions of them."""
        self.unit.split(cls)
