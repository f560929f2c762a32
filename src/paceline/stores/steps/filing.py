"""Filing: which lane a job that has not started belongs to, and where it waits until it is due."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice, takewhile

from paceline.clock import NEVER, Micros
from paceline.job import DELAYED, WAITING, JobState
from paceline.limits import Limit
from paceline.limits.turns import joins_at
from paceline.stores.interface import StartRecord
from paceline.stores.steps.lanes import BLOCKED, PAUSED, Group, Lane, LaneClass
from paceline.stores.steps.registry import Registry
from paceline.stores.steps.rows import Row


class Filing:
    """A queue: its classes, groups, delayed jobs, pauses, and the log of its starts."""

    def __init__(self, name: str, registry: Registry) -> None:
        self.name = name
        self.registry = registry
        self.rows: dict[str, Row] = {}
        self.unique: dict[str, Row] = {}
        self.counts: dict[JobState, int] = dict.fromkeys(JobState, 0)
        self.classes: dict[tuple[object, ...], LaneClass] = {}
        self.class_of_task: dict[str, LaneClass] = {}
        self.groups: dict[str | None, Group] = {}
        self.delayed: list[tuple[Micros, int, Row]] = []
        self.virtual_time = 0
        self.filings = 0
        self.paused = False
        self.paused_tasks: set[str] = set()
        self.paused_groups: set[str] = set()
        self.tasksets: dict[frozenset[str], int] = {}
        self.starts: dict[int, StartRecord] = {}
        """The log of starts by their fences, in the order in which they came to stand here."""

    # filing

    def group(self, id: str | None) -> Group:
        found = self.groups.get(id)
        if found is None:
            found = self.groups[id] = Group(id)
        return found

    def set_state(self, row: Row, state: JobState) -> None:
        self.counts[row.state] -= 1
        self.counts[state] += 1
        row.state = state

    def arrive(self, row: Row, now: Micros) -> None:
        """Take in a job that has not started: into its lane, or aside until it is due."""
        self.group(row.job.group).size += 1
        if row.due_at > now:
            self.set_state(row, DELAYED)
            self.delay(row)
        else:
            self.set_state(row, WAITING)
            self.file(row)

    def file(self, row: Row) -> None:
        """Put a due job into its lane; a group that had nothing waiting joins behind everyone."""
        job = row.job
        group = self.group(job.group)
        if group.waiting == 0:
            self.filings += 1
            group.take_turn(joins_at(group.turn, self.virtual_time), self.filings)
        group.waiting += 1
        lane = self.lane(self.class_for(job.task), group)
        lane.cls.waiting += 1
        lane.push(row)
        if group.id in self.paused_groups:
            lane.state = PAUSED
        elif lane.waiting == 1 or (lane.state is BLOCKED and lane.head() is row):
            # A new head may fit where the old one did not.
            lane.make_ready()

    def lane(self, cls: LaneClass, group: Group) -> Lane:
        lane = cls.lanes.get(group.id)
        if lane is None:
            lane = cls.lanes[group.id] = group.lanes[cls] = Lane(cls, group)
            lane.meet(self.registry)
        return lane

    def leave(self, row: Row) -> None:
        """Take a job that has not started out of the line."""
        group = self.groups[row.job.group]
        group.size -= 1
        lane: Lane | None = row.lane
        if lane is None:
            self.undelay(row)
        else:
            lane.remove(row)
            lane.cls.waiting -= 1
            group.waiting -= 1
            self.drop_if_empty(lane)
            if lane.waiting and lane.state is BLOCKED:
                lane.make_ready()
        self.forget_if_idle(group)

    def drop_if_empty(self, lane: Lane) -> None:
        # The lane of jobs without a group stays: in a queue without groups it would be made anew for every job.
        if lane.waiting == 0 and lane.group.id is not None:
            lane.retire()

    def forget_if_idle(self, group: Group) -> None:
        # A group whose turn is not ahead of where it would join anyway is no different from a new one.
        if group.size == 0 and group.id is not None and group.turn <= joins_at(0, self.virtual_time):
            self.groups.pop(group.id, None)

    # delayed jobs

    def delay(self, row: Row) -> None:
        """Put a job aside until it is due."""
        row.entry = entry = (row.due_at, row.order, row)
        heappush(self.delayed, entry)

    def undelay(self, row: Row) -> None:
        """A delayed job goes elsewhere; its heap entry is left behind and ignored."""
        row.entry = None

    def promote_due(self, now: Micros, most: int) -> int:
        """File delayed jobs whose time has come, at most so many; returns how many."""
        moved = 0
        while moved < most and (row := self.pop_due(now)) is not None:
            self.set_state(row, WAITING)
            self.file(row)
            moved += 1
        return moved

    def pop_due(self, now: Micros) -> Row | None:
        """The delayed job that is due first, if its time has come."""
        return heappop(self.delayed)[2] if self.next_due() <= now else None

    def next_due(self) -> Micros:
        delayed = self.delayed
        while delayed and delayed[0][2].entry is not delayed[0]:
            heappop(delayed)
        return delayed[0][0] if delayed else NEVER

    def due_but_delayed(self, now: Micros) -> int:
        """How many delayed jobs are due, but not noticed by a claim yet."""
        return sum(1 for entry in self.delayed if entry[2].entry is entry and entry[0] <= now)

    # what else the queue remembers

    def groups_waiting(self) -> int:
        """How many groups have a job that waits."""
        return sum(1 for group in self.groups.values() if group.waiting)

    def forget_idle_groups(self) -> None:
        """Drop the groups that a new one could replace."""
        for group in [group for group in self.groups.values() if group.size == 0]:
            self.forget_if_idle(group)

    def log_start(self, row: Row, at: Micros) -> None:
        job = row.job
        self.starts[row.fence] = StartRecord(job.id, at, job.task, job.group, job.cost)

    def move_start(self, row: Row, at: Micros) -> None:
        """A start stands at another instant."""
        self.drop_start(row)
        self.log_start(row, at)

    def drop_start(self, row: Row) -> None:
        """A start did not happen."""
        self.starts.pop(row.fence, None)

    def starts_since(self, since: Micros | None) -> list[StartRecord]:
        return [start for start in self.starts.values() if since is None or start.at >= since]

    def forget_starts(self, before: Micros, keep: int) -> None:
        """Drop the oldest starts beyond `keep`, if they are older than an instant."""
        oldest = islice(self.starts.items(), max(len(self.starts) - keep, 0))
        for fence, _ in list(takewhile(lambda logged: logged[1].at < before, oldest)):
            del self.starts[fence]

    def ahead_of(self, row: Row) -> int:
        """How many jobs of its lane go before this one."""
        place = (row.job.priority, row.order)
        lane = self.class_for(row.job.task).lanes.get(row.job.group)
        return sum(1 for other in lane.rows() if (other.job.priority, other.order) < place) if lane is not None else 0

    # classes

    def signature(self, task: str) -> tuple[tuple[object, ...], tuple[Limit, ...]]:
        limits = self.registry.meeting(self.name, task)
        known_by = frozenset(number for tasks, number in self.tasksets.items() if task in tasks)
        return (tuple(limit.name for limit in limits), task in self.paused_tasks, known_by), limits

    def class_for(self, task: str) -> LaneClass:
        cls = self.class_of_task.get(task)
        if cls is None:
            signature, limits = self.signature(task)
            cls = self.classes.get(signature)
            if cls is None:
                cls = self.classes[signature] = LaneClass(signature, limits, self.registry)
            cls.tasks.add(task)
            self.class_of_task[task] = cls
        return cls

    def reclassify(self) -> None:
        """Limits, pauses or workers changed: put every task into the class it belongs to now."""
        self.class_of_task.clear()
        old = list(self.classes.values())
        self.classes = {}
        homeless: list[LaneClass] = []
        for cls in old:
            wanted = {self.signature(task) for task in cls.tasks}
            signatures = {signature for signature, _ in wanted}
            if len(signatures) == 1 and signatures.isdisjoint(self.classes):
                # The whole class goes together: no job has to move.
                signature, limits = wanted.pop()
                cls.define(signature, limits, self.registry)
                self.classes[signature] = cls
                self.meet_anew(cls)
            else:
                homeless.append(cls)
        for cls in homeless:
            self.move_out(cls)
        for cls in self.classes.values():
            self.class_of_task.update(dict.fromkeys(cls.tasks, cls))

    def meet_anew(self, cls: LaneClass) -> None:
        """A class stands for other limits now: its lanes look up their keys, and the next claim looks at them."""
        for lane in cls.lanes.values():
            lane.meet(self.registry)
            if lane.state is not PAUSED and lane.waiting:
                lane.make_ready()

    def move_out(self, cls: LaneClass) -> None:
        """The tasks of a class no longer belong together: file its jobs where they belong now."""
        if cls.source is not None:
            cls.source.split(cls)
            return
        for lane in list(cls.lanes.values()):
            rows = lane.rows()
            lane.retire()
            for row in rows:
                new = self.lane(self.class_for(row.job.task), lane.group)
                new.cls.waiting += 1
                new.push(row)
                if lane.group.id in self.paused_groups:
                    new.state = PAUSED
                else:
                    new.make_ready()

    def pause_group(self, group: str, paused: bool) -> None:
        (self.paused_groups.add if paused else self.paused_groups.discard)(group)
        found = self.groups.get(group)
        for lane in found.lanes.values() if found else ():
            if paused:
                lane.state = PAUSED
            elif lane.waiting:
                lane.make_ready()
