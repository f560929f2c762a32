"""A job as the steps see it: the part that never changes, and what its life adds."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, DELAYED, WAITING, JobRecord, JobState, NewJob

ON_TIME, OPEN, BEGUN = 0, 1, 2
"""A start counts where the claim stamped it; it was late, and every window counts it; it counts where it began."""


class Row(msgspec.Struct, eq=False):
    """One job. `entry` is the heap entry that is valid for it: all others are leftovers."""

    job: NewJob
    order: int
    created_at: Micros
    due_at: Micros
    state: JobState = WAITING
    attempts_made: int = 0
    crashes: int = 0
    returns: int = 0
    started_at: Micros | None = None
    finished_at: Micros | None = None
    progress: float = 0
    message: str | None = None
    result: bytes | None = None
    error: str | None = None
    logs: tuple[str, ...] = ()
    fence: int = 0
    worker: str | None = None
    cancel_asked: bool = False
    lease_until: Micros = 0
    entry: Any = None
    lane: Any = None
    keys: Any = ()
    gate: int = ON_TIME

    def __lt__(self, other: Row) -> bool:
        """Only reached when two heap entries are of one job: any order will do."""
        return False

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def active(self) -> bool:
        """True while it runs."""
        return self.state is ACTIVE

    def seen(self, now: Micros) -> JobState:
        """Its state for those who look: a delayed job that is due is waiting, whether a claim noticed or not."""
        return WAITING if self.state is DELAYED and self.due_at <= now else self.state

    def record(self, now: Micros, guard: Micros = NEVER) -> JobRecord:
        """The job as a value; `guard` is for whoever begins its handler."""
        job = self.job
        return JobRecord(
            job.id,
            job.queue,
            job.task,
            job.data,
            job.group,
            self.seen(now),
            job.priority,
            self.order,
            job.attempts,
            self.attempts_made,
            self.crashes,
            self.returns,
            job.cost,
            job.timeout,
            job.backoff,
            job.keep,
            job.unique,
            None if job.unique_ttl is None else self.created_at + job.unique_ttl,
            self.created_at,
            self.due_at,
            self.started_at,
            self.finished_at,
            self.progress,
            self.message,
            self.result,
            self.error,
            self.logs,
            self.fence,
            self.worker,
            self.cancel_asked,
            guard,
        )
