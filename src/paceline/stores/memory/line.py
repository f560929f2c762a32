"""One queue: filing jobs into lanes, and the choice of the next job to start."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, DELAYED, WAITING, JobState
from paceline.limits.admission import opens_at
from paceline.limits.rule import cost_under
from paceline.limits.turns import after_start, joins_at
from paceline.stores.interface import StartRecord
from paceline.stores.memory.choosing import Choosing
from paceline.stores.memory.lanes import BLOCKED, PARKED, PAUSED, READY, Group, Keys, Lane, LaneClass
from paceline.stores.memory.registry import LaneMeter, Registry
from paceline.stores.memory.rows import Row


class Line:
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
        self.starts: deque[StartRecord] = deque()

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
            row.entry = entry = (row.due_at, row.order, row)
            heappush(self.delayed, entry)
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
        if lane.push(row):
            # A new head may fit where the old one did not.
            if group.id in self.paused_groups:
                lane.state = PAUSED
            elif lane.waiting == 1 or lane.state is BLOCKED:
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
            row.entry = None
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
            for meter in lane.meters:
                meter.lanes.pop(lane, None)
            del lane.cls.lanes[lane.group.id]
            del lane.group.lanes[lane.cls]

    def forget_if_idle(self, group: Group) -> None:
        # A group whose turn is not ahead of where it would join anyway is no different from a new one.
        if group.size == 0 and group.id is not None and group.turn <= joins_at(0, self.virtual_time):
            self.groups.pop(group.id, None)

    def promote_due(self, now: Micros, budget: int) -> int:
        """File delayed jobs whose time has come, at most `budget` of them; returns how many."""
        moved = 0
        delayed = self.delayed
        while delayed and moved < budget:
            entry = delayed[0]
            row = entry[2]
            if row.entry is entry:
                if entry[0] > now:
                    break
                self.set_state(row, WAITING)
                self.file(row)
                moved += 1
            heappop(delayed)
        return moved

    def next_due(self) -> Micros:
        delayed = self.delayed
        while delayed and delayed[0][2].entry is not delayed[0]:
            heappop(delayed)
        return delayed[0][0] if delayed else NEVER

    # classes

    def signature(self, task: str) -> tuple[tuple[object, ...], tuple[object, ...]]:
        limits = self.registry.meeting(self.name, task)
        known_by = frozenset(number for tasks, number in self.tasksets.items() if task in tasks)
        return (tuple(limit.name for limit in limits), task in self.paused_tasks, known_by), limits

    def class_for(self, task: str) -> LaneClass:
        cls = self.class_of_task.get(task)
        if cls is None:
            signature, limits = self.signature(task)
            cls = self.classes.get(signature)
            if cls is None:
                cls = self.classes[signature] = LaneClass(signature, limits, self.registry)  # type: ignore[arg-type]
            cls.tasks.add(task)
            self.class_of_task[task] = cls
        return cls

    def reclassify(self) -> None:
        """Limits, pauses or workers changed: put every task into the class it belongs to now."""
        self.class_of_task.clear()
        old = list(self.classes.values())
        self.classes = {}
        homeless: list[Lane] = []
        for cls in old:
            wanted = {self.signature(task) for task in cls.tasks}
            signatures = {signature for signature, _ in wanted}
            if len(signatures) == 1 and signatures.isdisjoint(self.classes):
                # The whole class goes together: no job has to move.
                signature, limits = wanted.pop()
                cls.define(signature, limits, self.registry)  # type: ignore[arg-type]
                self.classes[signature] = cls
                for lane in cls.lanes.values():
                    lane.meet(self.registry)
                    if lane.state is not PAUSED and lane.waiting:
                        lane.make_ready()
            else:
                homeless += cls.lanes.values()
        for lane in homeless:
            self._move_out(lane)
        for cls in self.classes.values():
            self.class_of_task.update(dict.fromkeys(cls.tasks, cls))

    def _move_out(self, lane: Lane) -> None:
        rows = lane.rows()
        for meter in lane.meters:
            meter.lanes.pop(lane, None)
        del lane.group.lanes[lane.cls]
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

    # choosing

    def visible(self, choosing: Choosing) -> list[LaneClass]:
        """The classes whose jobs this worker can run and that are not paused; looked up once in a claim."""
        found = choosing.visible.get(self)
        if found is None:
            number = None if choosing.tasks is None else self.tasksets[choosing.tasks]
            classes = self.classes.values()
            found = [cls for cls in classes if not cls.paused and (number is None or number in cls.known_by)]
            choosing.visible[self] = found
        return found

    def unblock_due(self, choosing: Choosing) -> None:
        """File lanes whose time has come as ready."""
        for cls in self.classes.values():
            while choosing.budget > 0:
                lane = cls.next_blocked()
                if lane is None or lane.until > choosing.now:
                    break
                heappop(cls.blocked)
                lane.make_ready()
                choosing.budget -= 1

    def choose(self, choosing: Choosing) -> Row | None:
        """The next job to start, charged to nothing yet; None when nobody may start now."""
        if self.paused:
            return None
        now = choosing.now
        while choosing.budget > 0:
            best: Lane | None = None
            for cls in self.visible(choosing):
                lane = cls.first_ready()
                if lane is not None and (best is None or lane.goes_before(best)):
                    if cls.shared and cls.opens_at() > now:
                        continue
                    best = lane
            if best is None:
                return None
            row = best.head()
            if row.job.cost == 1 and choosing.plain and best.admits_unit(now):
                # Its class admits a start of cost 1, its group too, and nothing else is asked.
                return row
            verdict = self.consider(best, row, choosing)
            if verdict is not None:
                return row if verdict else None
        return None

    def consider(self, lane: Lane, row: Row, choosing: Choosing) -> bool | None:
        """Whether this job starts: True, False (stop here), or None (refused: it was filed where it belongs)."""
        now = choosing.now
        cost = row.job.cost
        if choosing.most is not None and cost_under(cost, "") > choosing.most:
            choosing.skipped.append(lane)
            lane.state = PARKED
            choosing.budget -= 1
            return None
        if choosing.room is not None and cost_under(cost, "") > choosing.room:
            choosing.needs_room = cost_under(cost, "")
            return False
        keys = lane.keys_for(row)
        if choosing.also:
            also = [(meter, cost_under(cost, meter.key[0])) for meter in choosing.also]
            if opens_at(also) > now:
                return False
        closed_until = lane.opens_at()
        if self.registry.reserved:
            kept = [meter.reserved_until for meter in lane.meters if meter.reserved_by not in (None, row.job.id)]
            closed_until = max([closed_until, *kept])
        if closed_until > now:
            # Its group may start nothing at all now, whatever it costs.
            choosing.budget -= 1
            lane.file_until(closed_until)
            return None
        if cost != 1 and (misfit := next(((m, c) for m, c in keys if not m.fits(c)), None)):
            meter, cost = misfit
            self.leave(row)
            text = f"the job costs {cost}, but limit {meter.key[0]!r} never allows more than {meter.most()}"
            choosing.misfits.append((row, f"NeverFits: {text}"))
            choosing.budget -= 1
            return None
        if opens_at(keys) <= now:
            return True
        choosing.budget -= 1
        self.keep_room(lane, row, keys, now)
        return None

    def keep_room(self, lane: Lane, row: Row, keys: Keys, now: Micros) -> None:
        """Only its size is in the way of this head: nobody else starts where it lacks room, for one window at most."""
        if self.registry.reserved and any(meter.reserved_by == row.job.id for meter, _ in keys):
            # Room is kept for it already: every claim looks at it first.
            lane.file_until(opens_at(keys))
            return
        for meter, cost in keys:
            if meter.opens_at(cost) > now:
                meter.reserve(row.job.id, cost, now)
                self.registry.reserved[meter] = None
        own = lane.opens_at(row.job.cost)
        if own > now:
            lane.file_until(own)

    def start(self, lane: Lane, row: Row, keys: Keys, now: Micros) -> None:
        """Move the job from its lane to active, charge every key, and give its group the next turn."""
        group = lane.group
        job = row.job
        lane.remove(row)
        lane.cls.waiting -= 1
        group.waiting -= 1
        group.size -= 1
        if group.turn > self.virtual_time:
            self.virtual_time = group.turn
        self.filings += 1
        cost = job.cost if isinstance(job.cost, int) else 1
        group.take_turn(after_start(group.turn, self.virtual_time, cost), self.filings)
        for meter, taken in keys:
            meter.charge(job.id, taken, now)
            if self.registry.reserved and meter.reserved_by is None:
                self.registry.reserved.pop(meter, None)
        row.keys = keys
        counts = self.counts
        counts[WAITING] -= 1
        counts[ACTIVE] += 1
        row.state = ACTIVE
        self.starts.append(StartRecord(job.id, now, job.task, job.group, job.cost))
        has_others = len(group.lanes) > 1
        if lane.waiting:
            if lane.state is READY:
                lane.make_ready()
        else:
            self.drop_if_empty(lane)
        if has_others:
            for other in group.lanes.values():
                if other is not lane and other.state is READY and other.waiting:
                    other.make_ready()
        for meter in lane.meters:
            self._file_full(meter, now)
        self.forget_if_idle(group)

    def _file_full(self, meter: LaneMeter, now: Micros) -> None:
        """A start filled a group's key: file its lanes here and now, in whatever queue they are."""
        until = meter.opens_at(1)
        if until > now:
            for lane in meter.lanes:
                if lane.state is READY and lane.waiting:
                    lane.file_until(until)

    def still_reserves(self, meter: LaneMeter, row: Row, now: Micros) -> bool:
        """A reservation lasts while its job is next in its lane and nothing but its size keeps it from starting."""
        lane: Lane | None = row.lane
        if lane is None or now >= meter.reserved_deadline or lane.head() is not row:
            return False
        if self.paused or lane.cls.paused or lane.state is PAUSED:
            return False
        refusing = [(other, cost) for other, cost in lane.keys_for(row) if other.opens_at(cost) > now]
        return all(other.lacks_only_room(cost, now) for other, cost in refusing)

    def next_at(self, choosing: Choosing) -> Micros:
        """The earliest instant at which a claim could give more than this one did, as far as time decides."""
        at = self.next_due()
        if self.paused:
            return at
        for cls in self.visible(choosing):
            shared = cls.opens_at()
            if shared >= NEVER:
                for meter in cls.shared:
                    meter.awaited = True
                continue
            if cls.first_ready() is not None:
                at = min(at, shared)
            else:
                lane = cls.next_blocked()
                if lane is not None:
                    at = min(at, max(shared, lane.until))
        return at
