"""A job as two rows of the file: what was asked for, and what happened to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.job import ACTIVE, DELAYED, FINISHED, WAITING, Backoff, JobState, NewJob
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.state import SqliteState

STATES = {str(state): state for state in JobState}
_encode = msgspec.msgpack.encode
_decode_backoff = msgspec.msgpack.Decoder(Backoff).decode


class SqliteRow(Row, eq=False):
    """A job with its number in the file."""

    n: int = 0


def read_row(state: SqliteState, columns: Sequence[Any]) -> SqliteRow:
    """The job that a row of the view `paceline_jobs` is about."""
    (
        n,
        _,
        job_id,
        queue,
        task,
        data,
        group,
        priority,
        place,
        attempts,
        backoff,
        timeout,
        cost,
        keep,
        unique,
        unique_ttl,
        created_at,
        first_due_at,
        seen,
        *life,
    ) = columns
    job = NewJob(
        job_id,
        state.queue_name(queue),
        task,
        data,
        group,
        None,
        0,
        None,
        priority,
        place < 0,
        attempts,
        None if backoff is None else _decode_backoff(backoff),
        timeout,
        cost if type(cost) is int else json.loads(cost),
        keep,
        unique,
        unique_ttl,
    )
    row = SqliteRow(job, place, created_at, first_due_at, n=n)
    if seen is None:
        row.state = DELAYED if first_due_at > created_at else WAITING
    else:
        _live(state, row, STATES[seen], life)
    return row


def _live(state: SqliteState, row: SqliteRow, seen: JobState, life: list[Any]) -> None:
    row.state = seen
    row.attempts_made, row.crashes, row.returns, row.due_at, row.started_at, row.finished_at, row.progress = life[:7]
    row.message, row.result, row.error, logs, row.fence, row.worker, cancel_asked, row.lease_until, keys = life[7:]
    row.cancel_asked = bool(cancel_asked)
    if logs is not None:
        row.logs = tuple(json.loads(logs))
    if keys is not None and seen is ACTIVE:
        row.keys = state.keys_from(keys)


def job_columns(state: SqliteState, row: SqliteRow) -> tuple[Any, ...]:
    """The row that is written once."""
    job = row.job
    return (
        row.n,
        state.space,
        job.id,
        state.line(job.queue).number,  # type: ignore[attr-defined]
        job.task,
        job.group,
        job.data,
        job.priority,
        row.order,
        job.attempts,
        None if job.backoff is None else _encode(job.backoff),
        job.timeout,
        job.cost if type(job.cost) is int else json.dumps(job.cost),
        job.keep,
        job.unique,
        job.unique_ttl,
        row.created_at,
        row.due_at,
    )


def life_columns(state: SqliteState, row: SqliteRow) -> tuple[Any, ...]:
    """The row that changes."""
    job = row.job
    finished = row.state in FINISHED
    return (
        row.n,
        state.space,
        state.line(job.queue).number,  # type: ignore[attr-defined]
        row.state,
        row.attempts_made,
        row.crashes,
        row.returns,
        row.due_at,
        row.started_at,
        row.finished_at,
        row.progress,
        row.message,
        row.result,
        row.error,
        json.dumps(row.logs) if row.logs else None,
        row.fence,
        row.worker,
        row.cancel_asked,
        row.lease_until,
        state.keys_text(row.keys) if row.keys else None,
        row.finished_at + job.keep if finished and job.keep is not None and row.finished_at is not None else None,
    )
