"""Adding jobs: one statement, a short one where nothing has to be settled, and one for all who add at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from paceline.clock import Micros
from paceline.forks import PerLoop
from paceline.job import NewJob
from paceline.stores.adds import Adds, adds_here
from paceline.stores.interface import Inserted
from paceline.stores.postgres import within as transactions
from paceline.stores.postgres.arrays import arrays
from paceline.stores.postgres.faults import fault
from paceline.stores.postgres.limiting import LimitCalls
from paceline.stores.postgres.rows import JOB_KINDS, backoff_text, job_columns, new_record, record
from paceline.stores.postgres.texts import ADD_ONE, INSERT

Shape: TypeAlias = tuple[Any, ...]


def shape_of(job: NewJob) -> Shape | None:
    """What jobs of one short statement have in common; None where more has to be settled than an id."""
    if job.delay or job.due_at is not None or job.unique is not None or job.group_max_size is not None or job.cost != 1:
        return None
    return job.queue, job.task, job.priority, job.lifo, job.attempts, job.backoff, job.timeout, job.keep


class Adding(LimitCalls):
    """The part of the store that adds jobs."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self._adds: PerLoop[asyncio.AbstractEventLoop, Adds] = PerLoop()

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if not jobs:
            return []
        if len(jobs) == 1 and within is None and shape_of(jobs[0]) is not None:
            return await adds_here(self._adds, self._insert).add(jobs)
        return await self._insert(jobs, within)

    async def _insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if len(jobs) == 1 and jobs[0].fresh and shape_of(jobs[0]) is not None:
            (job,) = jobs
            options = [await self.queue_id(job.queue), job.task, job.priority, job.lifo, job.attempts]
            options += [backoff_text(job.backoff), job.timeout, job.keep]
            rows = await self._ask(ADD_ONE, [job.id, job.data, job.group, *options], within)
            if rows:
                ((seq, now, _),) = rows
                return self._all_new(jobs, [seq], now, within)
        queues = {name: await self.queue_id(name) for name in {job.queue for job in jobs}}
        columns = job_columns(jobs, queues)
        rows = await self._ask(INSERT, arrays(JOB_KINDS, columns) if within is None else columns, within)
        refused, ids, seqs, existed, now = rows[0][:5]
        if refused is not None:
            raise fault(refused)
        if existed is None:
            return self._all_new(jobs, seqs, now, within)
        self.heard(now)
        found = {row[5]: record(row[5:]) for row in rows if row[5] is not None}
        fresh = {
            job.id: new_record(job, seq, now) for job, seq, old in zip(jobs, seqs, existed, strict=True) if not old
        }
        if within is None and fresh:
            self.ears.hear(f"q{job.queue}" for job in jobs if job.id in fresh)
        return [
            Inserted(fresh[job.id] if not old else (fresh.get(job_id) or found[job_id]), old)
            for job, job_id, old in zip(jobs, ids, existed, strict=True)
        ]

    def _all_new(self, jobs: Sequence[NewJob], seqs: Sequence[int], now: Micros, within: object) -> list[Inserted]:
        self.heard(now)
        if within is None:
            self.ears.hear({f"q{job.queue}" for job in jobs})
        return [Inserted(new_record(job, seq, now), False) for job, seq in zip(jobs, seqs, strict=True)]

    async def _ask(self, text: str, values: Sequence[Any], within: object) -> list[tuple[Any, ...]]:
        """What all statements take first and last, here or in the caller's transaction."""
        values = (await self.space(), self.given_now(), *values, within is not None)
        if within is None:
            return await self.calls.rows(text, *values)
        return await transactions.fetch(within, self.calls.text(text), values)
