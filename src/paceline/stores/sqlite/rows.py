"""A job as two rows of the file: what was asked for, and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.clock import Micros
from paceline.job import ACTIVE, COMPLETED, DELAYED, FINISHED, WAITING, Backoff, JobState, NewJob
from paceline.options import KEEP
from paceline.stores.steps.rows import ON_TIME, Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

QUEUE = 40
"""A job's number is that of its queue, shifted by so many bits, plus its place in the order of adding."""
STATES = {str(state): state for state in JobState}


class SqliteRow(Row, eq=False):
    """A job with its number in the file, and its state as it is written there."""

    n: int = 0
    first_due_at: Micros = 0
    saved: JobState | None = None
    """None: nothing has happened to it."""


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


def read_row(state: SqliteState, columns: Sequence[Any]) -> SqliteRow:
    """The job that a row of the view `paceline_jobs` is about."""
    n, job_id, task, data, group, priority, place, packed, created_at, first_due_at, seen, *life = columns
    options = PLAIN if packed is None else _options(packed)
    job = NewJob(
        job_id,
        state.queue_name(n >> QUEUE),
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
    row = SqliteRow(job, place, created_at, first_due_at, n=n, first_due_at=first_due_at)
    if seen is None:
        row.state = DELAYED if first_due_at > created_at else WAITING
    else:
        row.state = row.saved = STATES[seen]
        _live(state, row, life)
    return row


def _live(state: SqliteState, row: SqliteRow, life: list[Any]) -> None:
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
    if keys is not None and row.state is ACTIVE:
        row.keys = state.keys_from(keys)


def job_columns(state: SqliteState, row: SqliteRow) -> tuple[Any, ...]:
    """The row that is written once."""
    job = row.job
    row.first_due_at = row.due_at
    plain = job.cost == 1 and job.keep == KEEP and job.attempts == 1 and job.unique is None and job.backoff is None
    packed = None if plain and job.timeout is None else _encode(_options_of(job))
    place = (job.data, job.priority, row.order, packed, row.created_at, row.due_at)
    return (row.n, state.space, job.id, job.task, job.group, *place)


def _options_of(job: NewJob) -> Options:
    return Options(job.attempts, job.backoff, job.timeout, job.cost, job.keep, job.unique, job.unique_ttl)


def is_begin(row: SqliteRow) -> bool:
    """True for a first start, and nothing else: most rows are written like this."""
    if row.saved is not None or row.state is not ACTIVE or row.attempts_made != 1 or row.error is not None:
        return False
    return row.due_at == row.first_due_at and _more_of(row) is None


def begin_columns(state: SqliteState, row: SqliteRow) -> tuple[Any, ...]:
    """A first start."""
    keys = state.keys_text(row.keys) if row.keys else None
    return row.n, state.space, row.started_at, row.fence, row.worker, row.lease_until, keys


def complete_columns(row: SqliteRow) -> tuple[Any, ...]:
    """The end of a run that is on record."""
    return row.finished_at, row.result, _expires_at(row), row.n


def life_columns(state: SqliteState, row: SqliteRow) -> tuple[Any, ...]:
    """Everything that can change."""
    more = _more_of(row)
    run = (row.fence, row.worker, row.lease_until, state.keys_text(row.keys) if row.keys else None)
    times = (None if row.due_at == row.first_due_at else row.due_at, row.started_at, row.finished_at)
    head = (row.n, state.space, row.state, row.attempts_made)
    return (*head, *times, row.result, row.error, *run, None if more is None else _encode(more), _expires_at(row))


def _more_of(row: SqliteRow) -> More | None:
    progress = 0 if row.state is COMPLETED else row.progress
    gate = row.gate if row.state is ACTIVE else ON_TIME
    if not (row.crashes or row.returns or progress or row.message or row.logs or row.cancel_asked or gate):
        return None
    return More(row.crashes, row.returns, progress, row.message, row.logs, row.cancel_asked, gate)


def _expires_at(row: SqliteRow) -> Micros | None:
    if row.state not in FINISHED or row.job.keep is None or row.finished_at is None:
        return None
    return row.finished_at + row.job.keep
