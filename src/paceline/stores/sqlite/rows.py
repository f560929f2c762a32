"""A job as two rows of the file: what was asked for, and what happened to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.clock import Micros
from paceline.job import ACTIVE, COMPLETED, DELAYED, FINISHED, WAITING, Backoff, JobState, NewJob
from paceline.options import KEEP
from paceline.stores.interface import StartRecord
from paceline.stores.steps.rows import ON_TIME, Row

QUEUE = 40
"""A job's number is that of its queue, shifted by so many bits, plus its place in the order of adding."""
STATES = {str(state): state for state in JobState}

Life = tuple[Any, ...]
"""All that can change of a job, to compare before and after."""
Place = tuple[bool, int, int, int]
"""Where a job that has not started is found: whether it waits, the lane or else the queue, and its place there."""


class Stored:
    """What the file has of a job."""

    __slots__ = ("first_due_at", "life", "n", "place", "state")

    def __init__(self, n: int, first_due_at: Micros) -> None:
        self.n = n
        self.first_due_at = first_due_at
        self.state: JobState | None = None
        """None: nothing has happened to it."""
        self.life: Life = ()
        self.place: Place | None = None

    def differs(self, row: Row) -> bool:
        """True when something happened to the job that the file does not say."""
        if self.state is None:
            asked = DELAYED if self.first_due_at > row.created_at else WAITING
            return row.state is not asked or row.due_at != self.first_due_at
        return row.state is not self.state or life_of(row) != self.life


class Options(msgspec.Struct, array_like=True, frozen=True):
    """What most jobs leave as it is."""

    attempts: int = 1
    backoff: Backoff | None = None
    timeout: Micros | None = None
    cost: int | dict[str, int] = 1
    keep: Micros | None = KEEP
    unique: str | None = None
    unique_ttl: Micros | None = None


class More(msgspec.Struct, array_like=True, frozen=True):
    """What happens to few jobs."""

    crashes: int = 0
    returns: int = 0
    progress: float = 0
    message: str | None = None
    logs: tuple[str, ...] = ()
    cancel_asked: bool = False
    gate: int = ON_TIME


PLAIN = Options()
_encode = msgspec.msgpack.Encoder().encode
_options = msgspec.msgpack.Decoder(Options).decode
_more = msgspec.msgpack.Decoder(More).decode


def read_row(queue: str, columns: Sequence[Any]) -> tuple[Row, str | None]:
    """The job that a row of the view `paceline_jobs` is about, and the keys it is charged to as they are written."""
    _, job_id, task, data, group, priority, place, packed, created_at, first_due_at, seen, *life = columns
    options = PLAIN if packed is None else _options(packed)
    job = NewJob(
        job_id,
        queue,
        task,
        data,
        group,
        None,
        0,
        None,
        priority,
        place < 0,
        options.attempts,
        options.backoff,
        options.timeout,
        options.cost,
        options.keep,
        options.unique,
        options.unique_ttl,
    )
    row = Row(job, place, created_at, first_due_at)
    if seen is None:
        row.state = DELAYED if first_due_at > created_at else WAITING
        return row, None
    row.state = STATES[seen]
    row.attempts_made, due_at, row.started_at, row.finished_at, row.result, row.error = life[:6]
    row.fence, row.worker, row.lease_until, keys, packed = life[6:]
    if due_at is not None:
        row.due_at = due_at
    if packed is not None:
        more = _more(packed)
        row.crashes, row.returns, row.progress, row.message = more.crashes, more.returns, more.progress, more.message
        row.logs, row.cancel_asked, row.gate = more.logs, more.cancel_asked, more.gate
    if row.state is COMPLETED:
        row.progress = 100
    return row, keys if row.state is ACTIVE else None


def life_of(row: Row) -> Life:
    """All that can change of a job."""
    return (
        row.state,
        row.attempts_made,
        row.due_at,
        row.started_at,
        row.finished_at,
        row.result,
        row.error,
        row.fence,
        row.worker,
        row.lease_until,
        row.keys,
        row.crashes,
        row.returns,
        row.progress,
        row.message,
        row.logs,
        row.cancel_asked,
        row.gate,
    )


def read_start(columns: Sequence[Any]) -> StartRecord:
    """One entry of the log of starts."""
    job_id, at, task, group, cost = columns
    return StartRecord(job_id, at, task, group, json.loads(cost) if isinstance(cost, str) else cost)


def job_columns(space: int, n: int, row: Row) -> tuple[Any, ...]:
    """The row that is written once."""
    job = row.job
    plain = job.cost == 1 and job.keep == KEEP and job.attempts == 1 and job.unique is None and job.backoff is None
    packed = None if plain and job.timeout is None else _encode(_options_of(job))
    place = (job.data, job.priority, row.order, packed, row.created_at, row.due_at)
    return (n, space, job.id, job.task, job.group, *place)


def _options_of(job: NewJob) -> Options:
    return Options(job.attempts, job.backoff, job.timeout, job.cost, job.keep, job.unique, job.unique_ttl)


def is_begin(row: Row, stored: Stored) -> bool:
    """True for a first start, and nothing else: most rows are written like this."""
    if stored.state is not None or row.state is not ACTIVE or row.attempts_made != 1 or row.error is not None:
        return False
    return row.due_at == stored.first_due_at and _more_of(row) is None


def is_completion(row: Row, stored: Stored) -> bool:
    """True for the end of a run that is on record and went well."""
    return row.state is COMPLETED and stored.state is ACTIVE and not row.cancel_asked and row.gate == ON_TIME


def complete_columns(row: Row, n: int) -> tuple[Any, ...]:
    """The end of a run that is on record."""
    return row.finished_at, row.result, _expires_at(row), n


def life_columns(space: int, row: Row, stored: Stored, keys: str | None) -> tuple[Any, ...]:
    """Everything that can change."""
    more = _more_of(row)
    run = (row.fence, row.worker, row.lease_until, keys)
    times = (None if row.due_at == stored.first_due_at else row.due_at, row.started_at, row.finished_at)
    head = (stored.n, space, row.state, row.attempts_made)
    return (*head, *times, row.result, row.error, *run, None if more is None else _encode(more), _expires_at(row))


def _more_of(row: Row) -> More | None:
    progress = 0 if row.state is COMPLETED else row.progress
    gate = row.gate if row.state is ACTIVE else ON_TIME
    if not (row.crashes or row.returns or progress or row.message or row.logs or row.cancel_asked or gate):
        return None
    return More(row.crashes, row.returns, progress, row.message, row.logs, row.cancel_asked, gate)


def _expires_at(row: Row) -> Micros | None:
    if row.state not in FINISHED or row.job.keep is None or row.finished_at is None:
        return None
    return row.finished_at + row.job.keep
