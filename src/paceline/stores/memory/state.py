"""Everything the memory store holds; the steps beside this file change it, one at a time under the store's lock."""

from __future__ import annotations

from heapq import heappush

from paceline.clock import Clock, Micros
from paceline.errors import JobNotFound
from paceline.stores.interface import WorkerRecord
from paceline.stores.memory.lanes import Keys
from paceline.stores.memory.line import Line
from paceline.stores.memory.listeners import Listeners
from paceline.stores.memory.registry import Registry
from paceline.stores.memory.rows import Row


class Permit:
    """A start that is no job, and the keys it holds."""

    __slots__ = ("active", "fence", "id", "keys", "lease_until", "started_at")

    def __init__(self, id: str, keys: Keys, started_at: Micros, lease_until: Micros) -> None:
        self.id = id
        self.keys = keys
        self.started_at = started_at
        self.lease_until = lease_until
        self.fence = 0
        self.active = True


Leased = list[tuple[Row | Permit, int]]
"""Who holds leases that end together, with their fences."""


class State:
    """Jobs, queues, limits, leases and sleepers."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._clock_now = clock.now
        self.rows: dict[str, Row] = {}
        self.lines: dict[str, Line] = {}
        self.registry = Registry()
        self.listeners = Listeners()
        self.permits: dict[str, Permit] = {}
        self.waiting_permits: set[str] = set()
        """Permits that are waited for and have reserved room."""
        self.lease_ends: list[tuple[Micros, int, Leased]] = []
        self._leasings = 0
        self.workers: dict[str, WorkerRecord] = {}
        self.last_claims: dict[str, tuple[str, Leased]] = {}
        self.orders = 0
        self.fences = 0
        """Counted over all jobs, so that a fence proves nothing for a later job of the same id."""
        self._latest: Micros = 0

    def now(self) -> Micros:
        """The store's time; it stands still rather than go back. Overrides whose time is over end here."""
        now = self._clock_now()
        if now > self._latest:
            self._latest = now
        else:
            now = self._latest
        if now >= self.registry.next_expiry:
            for name in self.registry.expire(now):
                self.limit_opened(name)
        return now

    def lease(self, holders: Leased, until: Micros) -> None:
        """Note when leases end; what was taken together is looked at together."""
        self._leasings += 1
        heappush(self.lease_ends, (until, self._leasings, holders))

    def line(self, name: str) -> Line:
        found = self.lines.get(name)
        if found is None:
            found = self.lines[name] = Line(name, self.registry)
        return found

    def row(self, job_id: str) -> Row:
        found = self.rows.get(job_id)
        if found is None:
            raise JobNotFound(job_id)
        return found

    def limit_opened(self, name: str, group: str | None = None) -> None:
        """The numbers, the hold or the starts of a limit changed: whoever waits for it looks again."""
        for meter in self.registry.meters_of(name):
            if group is None or meter.key[1] == group:
                for lane in meter.lanes:
                    lane.look_again()
        self.listeners.wake_all()

    def reclassify(self) -> None:
        """Which limits jobs meet has changed."""
        for line in self.lines.values():
            line.reclassify()
        self.listeners.wake_all()

    def free(self, holder: str, keys: Keys) -> None:
        """A lease ended: its slots are free, and whoever waits for one is told."""
        wake = False
        for meter, _ in keys:
            meter.leases.discard(holder)
            for lane in meter.lanes:
                wake |= lane.unpark()
            if meter.awaited:
                meter.awaited = False
                wake = True
        if wake:
            self.listeners.wake_all()
