"""One queue: the choice of the next job to start, and what a start changes."""

from __future__ import annotations

from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, WAITING
from paceline.limits.admission import opens_at
from paceline.limits.rule import cost_under
from paceline.limits.turns import after_start
from paceline.stores.steps.choosing import Choosing
from paceline.stores.steps.filing import Filing
from paceline.stores.steps.lanes import PAUSED, READY, Keys, Lane, LaneClass
from paceline.stores.steps.registry import LaneMeter
from paceline.stores.steps.rows import Row


class QueueState(Filing):
    """A queue as a claim sees it."""

    def visible(self, choosing: Choosing) -> list[LaneClass]:
        """The classes whose jobs this worker can run and that are not paused; looked up once in a claim."""
        found = choosing.visible.get(self)
        if found is None:
            number = None if choosing.tasks is None else self.tasksets[choosing.tasks]
            classes = self.classes.values()
            found = [cls for cls in classes if not cls.paused and (number is None or number in cls.known_by)]
            choosing.visible[self] = found
        return found

    def unblock_due(self, now: Micros, most: int) -> int:
        """File lanes whose time has come as ready, at most so many; returns how many."""
        moved = 0
        for cls in self.classes.values():
            while moved < most:
                lane = cls.next_blocked()
                if lane is None or lane.until > now:
                    break
                lane.make_ready()
                moved += 1
        return moved

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
        keys = lane.keys_for(row)
        closed_until = lane.opens_at()
        if self.registry.reserved:
            kept = [meter.reserved_until for meter in lane.meters if meter.reserved_by not in (None, row.job.id)]
            closed_until = max([closed_until, *kept])
        if closed_until > now:
            # Its group may start nothing at all now, whatever it costs and whoever asks.
            choosing.budget -= 1
            lane.file_until(closed_until)
            return None
        if choosing.most is not None and cost_under(cost, "") > choosing.most:
            choosing.skip(lane)
            return None
        if choosing.room is not None and cost_under(cost, "") > choosing.room:
            choosing.needs_room = cost_under(cost, "")
            return False
        if cost != 1 and (misfit := next(((m, c) for m, c in keys if not m.fits(c)), None)):
            meter, cost = misfit
            self.leave(row)
            text = f"the job costs {cost}, but limit {meter.key[0]!r} never allows more than {meter.most()}"
            choosing.misfits.append((row, f"NeverFits: {text}"))
            choosing.budget -= 1
            return None
        if choosing.also and (verdict := self._brought(lane, row, keys, choosing)) is not True:
            return verdict
        if opens_at(keys) <= now:
            return True
        choosing.budget -= 1
        self.keep_room(lane, row, keys, now)
        return None

    def _brought(self, lane: Lane, row: Row, keys: Keys, choosing: Choosing) -> bool | None:
        """Whether the limits that only the worker brings along admit a job; those it meets itself decide as its own."""
        met = {meter for meter, _ in keys}
        brought = [(m, cost_under(row.job.cost, m.key[0])) for m in choosing.also if m not in met]
        if not all(meter.fits(cost) for meter, cost in brought):
            choosing.skip(lane)
            return None
        kept = [meter.reserved_until for meter, _ in brought if meter.reserved_by not in (None, row.job.id)]
        until = max([opens_at(brought), *kept])
        if until > choosing.now:
            choosing.stuck[self] = until
            return False
        return True

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

    def start(self, lane: Lane, row: Row, keys: Keys, choosing: Choosing) -> None:
        """Move the job from its lane to active, charge every key, and give its group the next turn."""
        now = choosing.now
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
        self.log_start(row, now)
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
            self._file_full(meter, choosing)
        self.forget_if_idle(group)

    def _file_full(self, meter: LaneMeter, choosing: Choosing) -> None:
        """A start filled a group's key: file its lanes here and now. Other queues find out when they are asked."""
        until = meter.opens_at(1)
        if until <= choosing.now:
            return
        name, id = meter.key
        for line in choosing.queues:
            group = line.groups.get(id)
            for cls, lane in group.lanes.items() if group is not None else ():
                if lane.state is READY and lane.waiting and any(limit.name == name for limit in cls.group_limits):
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
