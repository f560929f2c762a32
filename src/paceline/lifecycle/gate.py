"""The gate: the last thing before a handler's first line. Late, the store decides again; begun late, it is told so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from paceline.clock import NEVER, SECOND, Micros, since_boot
from paceline.job import Job
from paceline.lifecycle.lags import Lags
from paceline.stores.interface import Begun, Decided, Lease, Store

log = logging.getLogger("paceline.worker")

WARN_EVERY: Micros = 60 * SECOND
WARN_FROM = 20
"""Late handlers are logged no more often than this, and when there are so many, one in ten or more."""
MILLISECOND: Micros = 1_000
PAUSE = 0.2
"""Real seconds between two tries to report what began while the store is away."""


class Passage:
    """The way of one run from its claim to its handler. Threads and child processes look at it, too."""

    __slots__ = ("began_at", "guard", "jobs", "opened", "reported", "since")

    def __init__(self, jobs: list[Job[Any]], since: Micros) -> None:
        self.jobs = jobs
        self.since = since
        """Its starts were stamped at this instant or later, on the clock of `since_boot`."""
        self.guard: Micros = min(job.record.guard for job in jobs)
        self.opened = False
        """The store decided again: its starts count in every window until they are said to have begun."""
        self.began_at: Micros = 0
        """When its handler was seen to have begun, on the same clock: then, or a little earlier."""
        self.reported: asyncio.Future[None] | None = None

    @property
    def is_late(self) -> bool:
        """True when it may not begin before the store has decided again."""
        return since_boot() - self.since > self.guard and not self.opened

    def leases(self) -> list[Lease]:
        return [Lease(job.id, job.record.fence) for job in self.jobs]

    def begun(self, now: Micros) -> list[Begun]:
        """What the store is told; in whole milliseconds, so that many that began together count as one instant."""
        ago = max(now - self.began_at, 0) // MILLISECOND * MILLISECOND
        return [Begun(job.id, job.record.fence, ago) for job in self.jobs]


class Gate:
    """Lets the handlers of one worker begin."""

    def __init__(self, store: Store, forget: Callable[[str], None]) -> None:
        self._store = store
        self._forget = forget
        """Called with the id of each job that does not begin here after all."""
        self._late: list[tuple[Passage, asyncio.Future[bool]]] = []
        self._begun: list[Passage] = []
        self._deciding: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._warn_at: Micros = 0
        self._seen = self._seen_late = 0
        self.lags = Lags()

    async def open(self, passage: Passage) -> bool:
        """Ask the store about a late run: jobs that it refuses leave the run. False when the store is away."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._late.append((passage, answer))
        if self._deciding is None:
            self._deciding = asyncio.get_running_loop().create_task(self._decide())
        return await answer

    async def _decide(self) -> None:
        """All that are late by now in one step: those of one claim come here in the same turn of the loop."""
        try:
            while self._late:
                late, self._late = self._late, []
                try:
                    decided = await self._store.decide_again(
                        [lease for passage, _ in late for lease in passage.leases()]
                    )
                except Exception as error:
                    log.warning("late starts could not be decided again, their jobs are handed back: %s", error)
                    decided = None
                for passage, answer in late:
                    if decided is not None:
                        self._let_in(passage, decided)
                    if not answer.done():
                        answer.set_result(decided is not None)
        finally:
            self._deciding = None
            for _, answer in self._late:
                answer.cancel()

    def _let_in(self, passage: Passage, decided: Decided) -> None:
        gone = {*decided.refused, *decided.lost}
        passage.opened = True
        for job in passage.jobs:
            if job.id in decided.lost:
                log.warning("job %s: its lease was lost before its handler began", job.id)
            if job.id in gone:
                self._forget(job.id)
        if gone:
            # In place: whoever was handed the list sees what is left of it.
            passage.jobs[:] = [job for job in passage.jobs if job.id not in gone]

    def began(self, passage: Passage, at: Micros) -> None:
        """Once more after the first line: a handler that was stopped on its way may have begun late after all."""
        passage.began_at = at
        lag = at - passage.since
        is_late = passage.opened or lag > passage.guard
        self.lags.add(passage.jobs, lag, is_late)
        self._count(passage, lag, is_late)
        if is_late:
            passage.reported = asyncio.get_running_loop().create_future()
            self._begun.append(passage)
            if self._reporting is None:
                self._reporting = asyncio.get_running_loop().create_task(self._report())

    def _count(self, passage: Passage, lag: Micros, is_late: bool) -> None:
        """Warn when many are late; one now and then is nothing to act on."""
        self._seen += 1
        self._seen_late += is_late
        if not is_late or self._seen_late < WARN_FROM or self._seen_late * 10 < self._seen or not passage.jobs:
            return
        if (now := since_boot()) >= self._warn_at:
            log.warning(
                "handlers of task %s begin late: %d of the last %d, this one %d ms after its start; the guard of its "
                "limits is %d ms; each asks the store again. Give the limit a longer guard, or the worker fewer slots",
                passage.jobs[0].task,
                self._seen_late,
                self._seen,
                lag // 1000,
                passage.guard // 1000,
            )
            self._warn_at, self._seen, self._seen_late = now + WARN_EVERY, 0, 0

    async def _report(self) -> None:
        """Say what began, and how long ago: the store counts it from there, or a little later, and no earlier."""
        try:
            while self._begun:
                begun, self._begun = self._begun, []
                try:
                    now = since_boot()
                    await self._store.begun([said for passage in begun for said in passage.begun(now)])
                except Exception as error:
                    # Whatever it was: runs wait for this before their ends are written.
                    log.info("handlers that began late could not be reported yet: %s", error)
                    # Open starts count until they are reported, or until their ends are written.
                    self._begun += [passage for passage in begun if passage.opened]
                for passage in begun:
                    if passage.reported is not None and not passage.reported.done():
                        passage.reported.set_result(None)
                if self._begun:
                    await asyncio.sleep(PAUSE)
        finally:
            self._reporting = None

    async def ended(self, passage: Passage) -> None:
        """Before the end of a run is written: an end says that an open start has begun, and no other."""
        if passage.reported is None:
            return
        if not passage.opened:
            await asyncio.wait([passage.reported])
        elif passage in self._begun:
            self._begun.remove(passage)

    def close(self) -> None:
        """The worker ends, and its ends are written."""
        for task in (self._deciding, self._reporting):
            if task is not None:
                task.cancel()
        self._begun.clear()


def passage_for(jobs: list[Job[Any]], since: Micros, *, virtual: bool) -> Passage | None:
    """How jobs pass the gate; None where nothing counts their beginning, or a test moves the clock."""
    if virtual:
        return None
    if len(jobs) == 1:
        return None if jobs[0].record.guard >= NEVER else Passage(jobs, since)
    return None if all(job.record.guard >= NEVER for job in jobs) else Passage(jobs, since)
