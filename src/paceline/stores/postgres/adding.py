"""Adding jobs: one statement, a short one where nothing has to be settled, and one for all who add at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from paceline.clock import Micros
from paceline.errors import StoreUnavailable
from paceline.job import NewJob
from paceline.stores.interface import Inserted
from paceline.stores.postgres import within as transactions
from paceline.stores.postgres.arrays import BYTEA, TEXT, array, arrays
from paceline.stores.postgres.faults import fault
from paceline.stores.postgres.limiting import LimitCalls
from paceline.stores.postgres.rows import JOB_KINDS, backoff_text, job_columns, new_record, record
from paceline.stores.postgres.texts import ADD, ADD_ONE, INSERT

WAYS = 2
"""So many statements with single jobs are under way at once; who comes meanwhile goes with the next one."""
MOST_JOBS, MOST_BYTES = 500, 4 * 2**20
"""What goes together at most."""

Shape: TypeAlias = tuple[Any, ...]
Send: TypeAlias = Callable[[Sequence[NewJob], Shape], Awaitable[list[Inserted]]]


def shape_of(job: NewJob) -> Shape | None:
    """What jobs of one short statement have in common; None where more has to be settled than an id."""
    if job.delay or job.due_at is not None or job.unique is not None or job.group_max_size is not None or job.cost != 1:
        return None
    return job.queue, job.task, job.priority, job.lifo, job.attempts, job.backoff, job.timeout, job.keep


class Adding(LimitCalls):
    """The part of the store that adds jobs."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self._together = Together(self._insert)

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if not jobs:
            return []
        shape = shape_of(jobs[0])
        if len(jobs) > 1 and any(shape_of(job) != shape for job in jobs):
            shape = None
        if len(jobs) == 1 and shape is not None and within is None:
            return [await self._together.add(jobs[0], shape)]
        return await self._insert(jobs, shape, within)

    async def _insert(self, jobs: Sequence[NewJob], shape: Shape | None, within: object = None) -> list[Inserted]:
        if shape is None:
            queues = {name: await self.queue_id(name) for name in {job.queue for job in jobs}}
            columns = job_columns(jobs, queues)
            rows = await self._ask(INSERT, columns if within else arrays(JOB_KINDS, columns), within)
        else:
            queue, task, priority, lifo, attempts, backoff, timeout, keep = shape
            number = await self.queue_id(queue)
            options = [number, task, priority, lifo, attempts, backoff_text(backoff), timeout, keep]
            if len(jobs) == 1 and jobs[0].fresh:
                (job,) = jobs
                rows = await self._ask(ADD_ONE, [job.id, job.data, job.group, *options], within)
                if rows:
                    ((seq, now, _),) = rows
                    return self._all_new(jobs, [seq], now, within)
            ids, datas, groups = [job.id for job in jobs], [job.data for job in jobs], [job.group for job in jobs]
            lists: list[Any] = [ids, datas, groups if any(groups) else None]
            if within is None:
                lists = [array(TEXT, ids), array(BYTEA, datas), array(TEXT, groups)]
            rows = await self._ask(ADD, lists + options, within)
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


class Together:
    """Single jobs that are added while others are on their way share a statement and a commit."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting] = WeakKeyDictionary()

    async def add(self, job: NewJob, shape: Shape) -> Inserted:
        """Add one job; whoever asks next may have to wait until this is written, and then goes with all others."""
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = Waiting()
        if mine.under_way >= WAYS:
            answer: asyncio.Future[Inserted] = loop.create_future()
            mine.jobs.setdefault(shape, []).append((job, answer))
            return await answer
        mine.under_way += 1
        try:
            return (await self._send([job], shape))[0]
        finally:
            self._go_on(mine)

    def _go_on(self, mine: Waiting) -> None:
        """A statement came back: send those who wait, if there are any."""
        some, shape = mine.take()
        if not some:
            mine.under_way -= 1
            return
        task = asyncio.ensure_future(self._carry(some, shape))
        mine.tasks.add(task)
        task.add_done_callback(mine.tasks.discard)
        task.add_done_callback(lambda _: self._go_on(mine))

    async def _carry(self, some: list[tuple[NewJob, asyncio.Future[Inserted]]], shape: Shape) -> None:
        some = [each for each in some if not each[1].done()]  # whoever gave up meanwhile adds nothing
        try:
            found = await self._send([job for job, _ in some], shape) if some else []
        except BaseException as error:
            if len(some) > 1 and isinstance(error, Exception) and not isinstance(error, StoreUnavailable):
                # One of them may be the reason: each is told for itself.
                for each in some:
                    await self._carry([each], shape)
                return
            for _, answer in some:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), inserted in zip(some, found, strict=True):
            if not answer.done():
                answer.set_result(inserted)


class Waiting:
    """Who waits to add in one event loop, by what their jobs have in common."""

    def __init__(self) -> None:
        self.under_way = 0
        self.jobs: dict[Shape, list[tuple[NewJob, asyncio.Future[Inserted]]]] = {}
        self.tasks: set[asyncio.Future[None]] = set()

    def take(self) -> tuple[list[tuple[NewJob, asyncio.Future[Inserted]]], Shape]:
        """Those of the shape that waits longest, as many as go together."""
        for shape, waiting in self.jobs.items():
            number = size = 0
            while number < len(waiting) and number < MOST_JOBS and size < MOST_BYTES:
                size += len(waiting[number][0].data)
                number += 1
            del self.jobs[shape]
            if number < len(waiting):
                self.jobs[shape] = waiting[number:]
            return waiting[:number], shape
        return [], ()
