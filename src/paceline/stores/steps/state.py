"""Everything the steps work on, one at a time: all there is in memory, or what a unit of work has loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import islice

from paceline.clock import NEVER, Micros
from paceline.errors import JobNotFound
from paceline.job import JobState
from paceline.stores.interface import Filter, WorkerRecord
from paceline.stores.steps.lanes import Keys
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.registry import LaneMeter, Registry
from paceline.stores.steps.rows import ON_TIME, Row
from paceline.stores.steps.sleepers import Wakes


class Permit:
    """A start that is no job, and the keys it holds."""

    __slots__ = ("active", "fence", "gate", "id", "keys", "lease_until", "started_at")

    def __init__(self, id: str, keys: Keys, started_at: Micros, lease_until: Micros) -> None:
        self.id = id
        self.keys = keys
        self.started_at = started_at
        self.lease_until = lease_until
        self.fence = 0
        self.active = True
        self.gate = ON_TIME


Leased = list[tuple[Row | Permit, int]]
"""Who holds leases that end together, with their fences."""


class State:
    """Jobs, queues, limits, leases and sleepers."""

    def __init__(self, clock_now: Callable[[], Micros], sleepers: Wakes) -> None:
        self._clock_now = clock_now
        self.rows: dict[str, Row] = {}
        self.queues: dict[str, QueueState] = {}
        self.registry = Registry()
        self.sleepers = sleepers
        self.permits: dict[str, Permit] = {}
        self.waiting_permits: set[str] = set()
        """Permits that are waited for and have reserved room."""
        self.lease_ends: list[tuple[Micros, int, Leased]] = []
        self._leasings = 0
        self.workers: dict[str, WorkerRecord] = {}
        self.last_claims: dict[str, tuple[str, list[tuple[str, int, Micros]]]] = {}
        """What each worker's latest claim gave: jobs, their fences and guards."""
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

    # jobs and queues

    def row(self, job_id: str) -> Row:
        found = self.rows.get(job_id)
        if found is None:
            raise JobNotFound(job_id)
        return found

    def add(self, row: Row) -> None:
        """Keep a new job."""
        self.rows[row.job.id] = self.queue(row.job.queue).rows[row.job.id] = row

    def discard(self, row: Row) -> None:
        """Forget a job."""
        del self.rows[row.job.id]
        del self.queue(row.job.queue).rows[row.job.id]

    def jobs_of(self, line: QueueState, seen: JobState | None, now: Micros) -> list[Row]:
        """The jobs of a queue, in one state or all of them, in the order they were added."""
        return [row for row in line.rows.values() if seen is None or row.seen(now) is seen]

    def page(self, wanted: Filter, now: Micros) -> list[Row]:
        """The jobs that match, in the order they were added; `after` is known to exist."""
        added = self.queue(wanted.queue).rows.values()
        rows = reversed(added) if wanted.newest_first else iter(added)
        if wanted.after is not None:
            for row in rows:
                if row.job.id == wanted.after:
                    break
        matching = (
            row
            for row in rows
            if (wanted.state is None or row.seen(now) is wanted.state)
            and (wanted.task is None or row.job.task == wanted.task)
            and (wanted.group is None or row.job.group == wanted.group)
        )
        return list(islice(matching, wanted.limit))

    def kept_too_long(self, now: Micros) -> list[Row]:
        """Finished jobs whose `keep` is over."""
        return [
            row
            for row in self.rows.values()
            if row.finished_at is not None and row.job.keep is not None and now - row.finished_at > row.job.keep
        ]

    def queue(self, name: str) -> QueueState:
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueState(name, self.registry)
        return found

    def all_queues(self) -> Sequence[QueueState]:
        """Every queue."""
        return list(self.queues.values())

    # leases

    def lease(self, holders: Leased, until: Micros) -> None:
        """Note when leases end; what was taken together is looked at together."""
        self._leasings += 1
        heappush(self.lease_ends, (until, self._leasings, holders))

    def leases_over(self, now: Micros, most: int) -> Leased:
        """Leases whose time is over: in the order in which they ended, then in which they started."""
        ends = self.lease_ends
        over: Leased = []
        until = 0
        # Those that end at one instant are looked at together: one that was prolonged may have started first.
        while ends and ends[0][0] <= now and (len(over) < most or ends[0][0] == until):
            until, _, holders = heappop(ends)
            over += [pair for pair in holders if _ends(pair, until)]
        over.sort(key=lambda pair: (pair[0].lease_until, pair[1]))
        if len(over) > most:
            self.lease(over[most:], until)
        return over[:most]

    def lease_may_be_over(self, now: Micros) -> bool:
        """False when it is certain that every lease lives."""
        return bool(self.lease_ends) and self.lease_ends[0][0] <= now

    def next_lease_end(self) -> Micros:
        """When the first live lease ends, unless it is prolonged."""
        ends = self.lease_ends
        while ends:
            until, _, holders = ends[0]
            while holders:
                if _ends(holders[-1], until):
                    return until
                holders.pop()
            heappop(ends)
        return NEVER

    def over_under(self, meter: LaneMeter, now: Micros) -> list[str]:
        """Who holds a lease under a key that is over, but not taken back yet."""
        found = [
            pair for until, _, holders in self.lease_ends if until <= now for pair in holders if _ends(pair, until)
        ]
        return [holder.id for holder, _ in found if any(held is meter for held, _ in holder.keys)]

    # what changes for many

    def limit_opened(self, name: str, group: str | None = None) -> None:
        """The numbers, the hold or the starts of a limit changed: whoever waits for it looks again."""
        for meter in self.registry.meters_of(name):
            if group is None or meter.key[1] == group:
                for lane in meter.lanes:
                    lane.look_again()
        self.sleepers.wake_all()

    def reclassify(self) -> None:
        """Which limits jobs meet has changed."""
        for line in self.all_queues():
            line.reclassify()
        self.sleepers.wake_all()

    def free(self, holder: str, keys: Keys) -> None:
        """A lease ended: its slots are free, and whoever waits for one is told."""
        for meter, _ in keys:
            meter.leases.discard(holder)
        self.unpark(keys)

    def unpark(self, keys: Keys) -> None:
        """A slot is free, or it is known from when on an open start counts: whoever waits for that looks again."""
        wake = False
        for meter, _ in keys:
            for lane in meter.lanes:
                wake |= lane.unpark()
            if meter.awaited:
                meter.awaited = False
                wake = True
        if wake:
            self.sleepers.wake_all()


def _ends(pair: tuple[Row | Permit, int], until: Micros) -> bool:
    """True when this lease still lives, and nobody prolonged it."""
    holder, fence = pair
    return holder.active and holder.fence == fence and holder.lease_until == until
