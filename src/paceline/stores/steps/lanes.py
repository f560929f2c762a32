"""Lanes, groups and classes of one queue: what a claim looks at instead of looking at jobs.

A lane holds the waiting jobs of one class and group; its head decides for it. A class is open or closed as a whole.
"""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush, heapreplace
from typing import Any, Protocol

from paceline.clock import NEVER, Micros
from paceline.limits import Limit
from paceline.limits.rule import cost_under
from paceline.stores.steps.registry import LaneMeter, Registry
from paceline.stores.steps.rows import Row

Keys = list[tuple[LaneMeter, int]]
Ticket = tuple[int, int]
LOWEST: Ticket = (-(1 << 63), -(1 << 63))
"""Before every turn, and before every place in a lane."""


class Source(Protocol):
    """Where lanes come from that are not all at hand: a store that keeps them elsewhere is asked for more."""

    def more_lanes(self, cls: LaneClass) -> None:
        """Bring further ready lanes, in the order of their turns, and move `cls.ready_edge`."""

    def more_blocked(self, cls: LaneClass) -> None:
        """Bring further blocked lanes, in the order in which they open, and move `cls.blocked_edge`."""

    def more_jobs(self, lane: Lane) -> None:
        """Bring further jobs of a lane, in their order, and move `lane.edge`."""

    def split(self, cls: LaneClass) -> None:
        """Move every job of a class that is no more to the lanes of the classes that its tasks belong to now."""


class LaneState(Enum):
    """Where a lane with waiting jobs is filed."""

    READY = 1  # in the order of its group's turn
    BLOCKED = 2  # until an instant
    PARKED = 3  # until something finishes
    PAUSED = 4  # until its group is resumed


READY, BLOCKED, PARKED, PAUSED = LaneState.READY, LaneState.BLOCKED, LaneState.PARKED, LaneState.PAUSED


class Group:
    """A tenant in one queue: its turn, and how many of its jobs have not started."""

    __slots__ = ("filed", "id", "lanes", "size", "ticket", "turn", "waiting")

    def __init__(self, id: str | None) -> None:
        self.id = id
        self.turn = 0
        self.filed = 0
        self.ticket = (0, 0)
        self.waiting = 0
        self.size = 0
        self.lanes: dict[LaneClass, Lane] = {}

    def take_turn(self, turn: int, filed: int) -> None:
        """Stand at a new place in the line of groups."""
        self.turn = turn
        self.ticket = (turn, filed)


class Lane:
    """The waiting jobs of one class and group, best first."""

    __slots__ = ("cls", "edge", "group", "heap", "meters", "pushed", "state", "unit_keys", "until", "waiting")

    def __init__(self, cls: LaneClass, group: Group) -> None:
        self.cls = cls
        self.group = group
        self.heap: list[tuple[int, int, Row]] = []
        self.edge: Ticket | None = None
        """Jobs up to this priority and order are at hand; None: all are."""
        self.waiting = 0
        self.state = READY
        self.until: Micros = 0
        self.pushed: tuple[int, int] | None = None
        self.meters: list[LaneMeter] = []
        self.unit_keys: Keys = []

    def meet(self, registry: Registry) -> None:
        """Look up the keys of this lane: the class's shared ones and the group's own."""
        self.leave_meters()
        group = self.group.id
        self.meters = [] if group is None else [registry.meter(limit.name, group) for limit in self.cls.group_limits]
        self.unit_keys = [(meter, 1) for meter in (*self.cls.shared, *self.meters)]
        for meter in self.meters:
            meter.lanes[self] = None

    def leave_meters(self) -> None:
        """No key of this lane has to find it any more."""
        for meter in self.meters:
            meter.lanes.pop(self, None)

    def retire(self) -> None:
        """The lane is empty or its class is gone: nobody has to find it any more."""
        self.leave_meters()
        del self.cls.lanes[self.group.id]
        del self.group.lanes[self.cls]

    def keys_for(self, row: Row) -> Keys:
        """The keys that a job of this lane is charged to, with what it takes from each."""
        cost = row.job.cost
        if cost == 1 or not self.unit_keys:
            return self.unit_keys
        return [(meter, cost_under(cost, meter.key[0])) for meter, _ in self.unit_keys]

    def push(self, row: Row) -> None:
        """Put a job into its place."""
        self.place(row)
        self.waiting += 1

    def place(self, row: Row) -> None:
        """Let a job be found here."""
        row.entry = entry = (row.job.priority, row.order, row)
        row.lane = self
        heappush(self.heap, entry)

    def head(self) -> Row:
        """The next job of a lane that is not empty."""
        heap = self.heap
        while True:
            while heap:
                entry = heap[0]
                row = entry[2]
                if row.entry is entry:
                    if self.edge is None or entry[:2] <= self.edge:
                        return row
                    break
                heappop(heap)
            assert self.edge is not None and self.cls.source is not None, "only asked for lanes with waiting jobs"
            self.cls.source.more_jobs(self)

    def goes_before(self, other: Lane) -> bool:
        """Groups by turn; two lanes of one group by the priority and order of their heads."""
        if self.group is not other.group:
            return self.group.ticket < other.group.ticket
        mine, theirs = self.head(), other.head()
        return (mine.job.priority, mine.order) < (theirs.job.priority, theirs.order)

    def remove(self, row: Row) -> None:
        """Take a job out; its heap entry is left behind and ignored unless it is the head."""
        if self.heap[0] is row.entry:
            heappop(self.heap)
        row.entry = row.lane = None
        self.waiting -= 1
        if self.waiting == 0:
            self.heap.clear()
            self.edge = None

    def rows(self) -> list[Row]:
        """All jobs of the lane, best first."""
        return [entry[2] for entry in sorted(self.heap) if entry[2].entry is entry]

    def opens_at(self, cost: Any = 1) -> Micros:
        """When the group's own limits admit a start."""
        return max((meter.opens_at(cost_under(cost, meter.key[0])) for meter in self.meters), default=0)

    def admits_unit(self, now: Micros) -> bool:
        """True when the group's own limits admit a start of cost 1 and none of them is kept for a bigger job."""
        for meter in self.meters:  # noqa: SIM110 - a generator would double the cost of the common case
            if meter.reserved_by is not None or meter.opens_at(1) > now:
                return False
        return True

    def make_ready(self) -> None:
        """File the lane at its group's turn."""
        self.state = READY
        ticket = self.group.ticket
        if self.pushed != ticket:
            self.pushed = ticket
            self.cls.push_ready(ticket, self)

    def file_until(self, until: Micros) -> None:
        """File the lane as blocked until an instant, or parked when only a finish can help."""
        if until >= NEVER:
            self.state = PARKED
            return
        self.state = BLOCKED
        self.until = until
        self.cls.push_blocked(until, self)

    def look_again(self) -> None:
        """A key of this lane may have opened: the next claim decides."""
        if self.waiting and (self.state is PARKED or self.state is BLOCKED):
            self.make_ready()

    def unpark(self) -> bool:
        """Something under a key of this lane finished; True when the lane was waiting for that."""
        if self.state is not PARKED or not self.waiting:
            return False
        self.make_ready()
        return True

    def __lt__(self, other: Lane) -> bool:
        """Only reached when two heap entries are of one lane: any order will do."""
        return False


class LaneClass:
    """The tasks of a queue that meet the same limits, are paused or not, and are known to the same workers."""

    __slots__ = (
        "blocked",
        "blocked_edge",
        "group_limits",
        "known_by",
        "lanes",
        "limits",
        "paused",
        "ready",
        "ready_edge",
        "shared",
        "signature",
        "source",
        "tasks",
        "waiting",
    )

    def __init__(self, signature: tuple[Any, ...], limits: tuple[Limit, ...], registry: Registry) -> None:
        self.lanes: dict[str | None, Lane] = {}
        self.ready: list[tuple[tuple[int, int], Lane]] = []
        self.blocked: list[tuple[Micros, int, Lane]] = []
        self.tasks: set[str] = set()
        self.waiting = 0
        self.source: Source | None = None
        self.ready_edge: Ticket | None = None
        """Ready lanes up to this turn are at hand; None: all are."""
        self.blocked_edge: Micros | None = None
        """Blocked lanes that open up to this instant are at hand; None: all are."""
        self.define(signature, limits, registry)

    def define(self, signature: tuple[Any, ...], limits: tuple[Limit, ...], registry: Registry) -> None:
        """Say what the class stands for; lanes must meet their keys anew."""
        self.signature = signature
        self.paused: bool = signature[1]
        self.known_by: frozenset[int] = signature[2]
        self.limits = limits
        self.shared = [registry.meter(limit.name, None) for limit in limits if limit.by is None]
        self.group_limits = tuple(limit for limit in limits if limit.by == "group")

    def push_ready(self, ticket: tuple[int, int], lane: Lane) -> None:
        """File a lane at its group's turn."""
        ready = self.ready
        if ready and ready[0][1] is lane:
            heapreplace(ready, (ticket, lane))
        else:
            heappush(ready, (ticket, lane))

    def push_blocked(self, until: Micros, lane: Lane) -> None:
        """File a lane until an instant."""
        heappush(self.blocked, (until, lane.group.ticket[1], lane))

    def first_ready(self) -> Lane | None:
        """The ready lane whose group has the next turn."""
        ready = self.ready
        while True:
            while ready:
                ticket, lane = ready[0]
                if lane.pushed == ticket and lane.state is READY and lane.waiting:
                    if self.ready_edge is None or ticket <= self.ready_edge:
                        return lane
                    break
                heappop(ready)
                if lane.pushed == ticket:
                    lane.pushed = None
            if self.ready_edge is None or self.source is None:
                return None
            self.source.more_lanes(self)

    def next_blocked(self) -> Lane | None:
        """The blocked lane that opens first."""
        blocked = self.blocked
        while True:
            while blocked:
                until, _, lane = blocked[0]
                if lane.state is BLOCKED and lane.until == until and lane.waiting:
                    if self.blocked_edge is None or until <= self.blocked_edge:
                        return lane
                    break
                heappop(blocked)
            if self.blocked_edge is None or self.source is None:
                return None
            self.source.more_blocked(self)

    def opens_at(self) -> Micros:
        """When the shared limits admit a start of cost 1."""
        at = 0
        for meter in self.shared:
            until = meter.opens_at(1)
            if meter.reserved_by is not None and meter.reserved_until > until:
                until = meter.reserved_until
            if until > at:
                at = until
        return at
