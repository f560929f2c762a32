"""A unit of work: what a step needs is loaded, the step runs on plain structures, and what differs is written.

What it loaded stays at hand for the next transaction if it is little and nobody else has written meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from paceline.clock import Clock, Micros
from paceline.errors import StoreUnavailable
from paceline.job import ACTIVE, WAITING
from paceline.stores.interface import StartRecord, WorkerRecord
from paceline.stores.sqlite import rules, schema
from paceline.stores.sqlite.connect import Database
from paceline.stores.sqlite.lanes import Lanes
from paceline.stores.sqlite.load import Loader
from paceline.stores.sqlite.meters import Meters
from paceline.stores.sqlite.needs import NEEDS
from paceline.stores.sqlite.notifications import Notifications
from paceline.stores.sqlite.rows import Stored
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.write import group_row, lane_row, queue_row, write
from paceline.stores.steps.insert import insert
from paceline.stores.steps.lanes import LOWEST, Group, Lane, LaneClass
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row
from paceline.stores.steps.sleepers import Sleepers
from paceline.stores.steps.state import State

LANES = statements("lanes")
SPACE = statements("space")
AT_HAND = 32
"""So many groups and meters stay at hand between transactions: all that is at hand is compared with the file."""
KEPT_GROUPS = 5_000
"""So many are set aside, until a step needs them."""
KEPT_JOBS = 5_000
"""So many running jobs stay in memory between transactions."""

T = TypeVar("T")


class Unit:
    """One namespace of a file, as one transaction after the other works on it."""

    def __init__(self, clock: Clock, namespace: str, sleepers: Sleepers, least_guard: Micros) -> None:
        self.clock = clock
        self.namespace = namespace
        self.notifications = Notifications(sleepers)
        self.beside: Unit | None = None
        """Another one on the same connection, which may have read the same rules."""
        self.least_guard = least_guard
        self.db: Database
        self.space = 0
        self.replaced = self.declared_again = False
        """The path leads to another file, which may not know what this program declared; it is told in this step."""
        self._now: Micros = 0
        """The time of a step: it stands still while the step is prepared and done."""
        self._latest: Micros = 0
        self.forget()

    # what is at hand

    def forget(self) -> None:
        """Nothing in memory is known to be true: another file, or a transaction that was undone."""
        self.declared_again = False
        self.version = self.rules_version = self.listeners_version = -1
        self.rules = rules.no_rules()
        self.logs: dict[int, tuple[int, list[Any]]] = {}
        self.notifications.clear()
        self._empty()

    def connected(self) -> None:
        """The file may be another one, with a time of its own."""
        self._latest = 0

    def _empty(self) -> None:
        """Begin with nothing at hand."""
        self.state = State(lambda: self._now, self.notifications)
        self.state.registry.least_guard = self.least_guard
        self.loader = Loader(self)
        self.lanes = Lanes(self)
        self.numbers: dict[object, int] = {}
        """Queues, classes, groups and lanes by the numbers that the file has for them."""
        self.saved: dict[object, Any] = {}
        """The same as they are written."""
        self.stored_classes: dict[QueueState, list[LaneClass]] = {}
        self.stored_lanes: dict[Group, list[Lane]] = {}
        self.classes: dict[int, LaneClass] = {}
        self.groups: dict[int, Group] = {}
        self.queue_of: dict[LaneClass | Group, QueueState] = {}
        self.remembered: dict[str, Row] = {}
        """Running jobs that were seen in an earlier transaction."""
        self.jobs: dict[Row, Stored] = {}
        self.asked_queues: list[QueueState] = []
        self._fresh = True
        self.outdated = False
        """Something was written past what is at hand: forget it when the transaction ends."""
        self._forget_step()

    def _forget_step(self) -> None:
        """What is only at hand during a transaction."""
        self.by_n: dict[int, Row] = {}
        self.unique: dict[tuple[QueueState, str], int | None] = {}
        self.starts: dict[tuple[QueueState, int], StartRecord] = {}
        self.permits: dict[str, tuple[Any, ...] | None] = {}
        self.workers: dict[str, WorkerRecord | None] = {}
        self.claims: dict[str, tuple[str, list[Any]] | None] = {}

    def took_queue(self, queue: QueueState, number: int) -> None:
        """A queue came to hand as the file has it."""
        self.numbers[queue] = number
        self.stored_classes[queue] = list(queue.classes.values())
        for cls in queue.classes.values():
            self.queue_of[cls] = queue
            self.saved[cls] = set(cls.tasks)
        self.saved[queue] = queue_row(queue)

    def took_group(self, queue: QueueState, group: Group, number: int) -> None:
        self.numbers[group] = number
        self.groups[number] = group
        self.queue_of[group] = queue
        self.saved[group] = group_row(group)
        self.stored_lanes[group] = []

    def took_lane(self, lane: Lane, number: int) -> None:
        self.numbers[lane] = number
        self.saved[lane] = lane_row(lane)
        self.stored_lanes[lane.group].append(lane)

    def forget_group(self, group: Group) -> None:
        """A group and its lanes are not at hand any more."""
        for lane in self.stored_lanes.pop(group):
            del self.numbers[lane], self.saved[lane]
        del self.groups[self.numbers.pop(group)], self.saved[group], self.queue_of[group]

    def next_id(self) -> int:
        """The next number of a queue, class, group, lane or meter."""
        self.ids += 1
        return self.ids

    # the transaction

    def begin(self, db: Database) -> None:
        """Look whether somebody else has written since."""
        self.db = db
        row = db.execute(SPACE["find"], (self.namespace,)).fetchone()
        if row is None:
            raise StoreUnavailable(
                "the file was emptied or replaced while it was in use; nothing was changed, try again"
            )
        self.space, version, rules_version, listeners_version, self.notified, latest, *numbers = row
        orders, fences, permits, ids, format_number = numbers
        if format_number != schema.VERSION:
            # Another release has upgraded the file while it was open here.
            raise schema.newer("the file", format_number)
        self.ids: int = ids
        self._ids_before = self.ids
        self._latest = max(self._latest, latest)
        if version != self.version:
            self._empty()
            self.version = version
        if rules_version != self.rules_version:
            known = self.beside is not None and self.beside.rules_version == rules_version
            self.rules = self.beside.rules if self.beside is not None and known else rules.read(db, self.space)
            self.rules_version = rules_version
            self._empty()
        if listeners_version != self.listeners_version:
            self.notifications.set_listeners(dict(db.execute(SPACE["listeners"], (self.space,)).fetchall()))
            self.listeners_version = listeners_version
        state = self.state
        state.orders, state.fences = orders, fences
        state._latest = self._latest
        self._numbers_before = (orders, fences, permits)
        if self._fresh:
            self._fresh = False
            self.rules.give(state.registry)
            self.meters = Meters(db, self.space, state.registry, self.logs, self.lanes)
            self.meters.load_reserved()
            state.waiting_permits = set(json.loads(permits))
        self.meters.db = db
        self.written = False
        self._unwritten = self._only_adds = False

    def run(self, step: Callable[..., T], *args: Any) -> T:
        """Load what a step needs, and do it."""
        needs = NEEDS.get(step)
        # Adds that come one after the other need nothing that the ones before have not written yet.
        load = None if needs is None else lambda: needs(self, *args)
        return self.run_with(load, lambda state: step(state, *args), after_adds=step is insert)

    def run_with(self, load: Callable[[], object] | None, step: Callable[[State], T], *, after_adds: bool = False) -> T:
        """Load in this way, then do a step."""
        if self._unwritten and not (self._only_adds and after_adds):
            # What is loaded next is read from the file.
            self.flush()
        self.lanes.expired(self.now())
        self.asked_queues = []
        if load is not None:
            load()
        self._only_adds = after_adds and (self._only_adds or not self._unwritten)
        self._unwritten = True
        return step(self.state)

    def now(self) -> Micros:
        """The time, for all that is done until this is asked again."""
        self._now = max(self.clock.now(), self._latest)
        return self._now

    def flush(self, last: bool = False) -> None:
        """Write what differs, to be committed with the rest."""
        self._unwritten = False
        self.written |= write(self, last)

    def end(self) -> bool:
        """Write what changed, and the number that tells others so; True when something did."""
        if self._unwritten:
            self.flush(last=True)
        state = self.state
        numbers = (state.orders, state.fences, json.dumps(sorted(state.waiting_permits)))
        self.written |= numbers != self._numbers_before or self.ids != self._ids_before or self.notifications.any()
        if not self.written:
            self._let_go()
            return False
        self.version += 1
        if self.notifications.any():
            self.notified += 1
        self._latest = state._latest
        head = (self.version, self.rules_version, self.listeners_version, self.notified, self._latest)
        self.db.execute(SPACE["save"], (*head, *numbers, self.space))
        if self.ids != self._ids_before:
            self.db.execute(SPACE["save_numbers"], (self.ids,))
        self.replaced = self.replaced and not self.declared_again
        self._let_go()
        return True

    def discard(self) -> None:
        """Keep nothing of what was only looked at."""
        self._empty()

    def _let_go(self) -> None:
        """Keep at hand what is little and likely to be needed next."""
        state = self.state
        self.meters.settle()
        if self.outdated or len(self.remembered) > KEPT_JOBS or len(self.lanes.spare) > KEPT_GROUPS:
            self._empty()
            return
        for job_id, row in state.rows.items():
            if row.state is ACTIVE:
                self.remembered[job_id] = row
            else:
                del self.jobs[row]
        state.rows.clear()
        for queue in state.queues.values():
            queue.rows.clear()
            queue.unique.clear()
            queue.delayed.clear()
            queue.starts.clear()
            for group in queue.groups.values():
                for lane in group.lanes.values():
                    lane.heap.clear()
                    lane.edge = LOWEST if lane.waiting else None
        state.permits.clear()
        state.workers.clear()
        state.last_claims.clear()
        state.lease_ends.clear()
        self._forget_step()
        if len(self.groups) > AT_HAND or len(state.registry.meters) > AT_HAND:
            self.lanes.set_aside()

    # classes that are no more

    def split(self, cls: LaneClass) -> None:
        """Move the jobs of a class to the classes that its tasks belong to now, in the file: there may be millions."""
        queue, number = self.queue_of[cls], self.numbers[cls]
        homes = {task: queue.class_for(task) for task in sorted(cls.tasks)}
        write(self, last=False)
        db = self.db
        where = {"class": number, "homes": json.dumps({task: self.numbers[home] for task, home in homes.items()})}
        paused = json.dumps(sorted(queue.paused_groups))
        db.execute(LANES["add_homes"], {**where, "ids": self.ids, "paused": paused})
        (taken,) = db.execute(LANES["last_lane"]).fetchone()
        self.ids = max(self.ids, taken or 0)
        db.execute(LANES["move_waits"], where)
        db.execute(LANES["drop_waits"], (number,))
        db.execute(LANES["drop_lanes"], (number,))
        for home in dict.fromkeys(homes.values()):
            db.execute(LANES["count_lanes"], (self.numbers[home],))
            (home.waiting,) = db.execute(LANES["count_class"], (self.numbers[home],)).fetchone()
        self.written = True
        self._load_lanes_again(queue)

    def _load_lanes_again(self, queue: QueueState) -> None:
        """The lanes of a queue have changed in the file: those that were at hand are loaded as they are now."""
        names = list(queue.groups)
        placed = [row for row in queue.rows.values() if row.state is WAITING and row.entry is not None]
        for group in queue.groups.values():
            for lane in group.lanes.values():
                lane.leave_meters()
            self.forget_group(group)
        queue.groups = {}
        for cls in queue.classes.values():
            cls.lanes, cls.ready, cls.blocked = {}, [], []
            self.lanes.keep_elsewhere(cls)
        self.lanes.groups(queue, names)
        for row in placed:
            row.entry = row.lane = None
        self.loader.place(placed)
