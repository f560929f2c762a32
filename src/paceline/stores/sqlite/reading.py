"""Looking at jobs, queues and workers: straight from their rows, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from paceline.clock import Micros
from paceline.errors import JobNotFound
from paceline.job import (
    ACTIVE,
    CANCELLED,
    COMPLETED,
    DELAYED,
    FAILED,
    FINISHED,
    NOT_STARTED,
    WAITING,
    JobRecord,
    JobState,
)
from paceline.stores.interface import Filter, QueueRecord, Standing, StartRecord, WorkerRecord
from paceline.stores.sqlite.needs import used
from paceline.stores.sqlite.rows import QUEUE, read_row, read_start
from paceline.stores.sqlite.statements import statements
from paceline.stores.sqlite.unit import Unit
from paceline.stores.steps import extend, read
from paceline.stores.steps.rows import Row

JOBS = statements("jobs")
LANES = statements("lanes")
SPACE = statements("space")


def _rows(unit: Unit, rows: list[tuple[Any, ...]]) -> list[Row]:
    numbers = {columns[0] >> QUEUE for columns in rows}
    names = {number: unit.db.execute(LANES["queue_name"], (number,)).fetchone()[0] for number in numbers}
    return [read_row(names[columns[0] >> QUEUE], columns)[0] for columns in rows]


def _rows_by_id(unit: Unit, ids: Sequence[str]) -> dict[str, Row]:
    found = unit.db.execute(JOBS["by_ids"], (json.dumps(list(dict.fromkeys(ids))), unit.space)).fetchall()
    return {row.job.id: row for row in _rows(unit, found)}


def get(unit: Unit, ids: Sequence[str]) -> list[JobRecord]:
    """The jobs that exist, in the order asked."""
    now = unit.now()
    rows = _rows_by_id(unit, ids)
    return [rows[job_id].record(now) for job_id in ids if job_id in rows]


def outcome(unit: Unit, job_id: str) -> tuple[Micros, JobRecord | None]:
    """The time, and the job if it is in a final state."""
    row = _rows_by_id(unit, [job_id]).get(job_id)
    if row is None:
        raise JobNotFound(job_id)
    now = unit.now()
    return now, row.record(now) if row.state in FINISHED else None


def find(unit: Unit, wanted: Filter) -> list[JobRecord]:
    """A page of jobs in the order they were added."""
    now = unit.now()
    number = _number_of(unit, wanted.queue)
    if number is None:
        return []
    low, high = number << QUEUE, (number + 1) << QUEUE
    if wanted.after is not None:
        found = unit.db.execute(JOBS["by_id"], (wanted.after, unit.space)).fetchone()
        if found is None or found[0] >> QUEUE != number:
            raise JobNotFound(wanted.after)
        low, high = (low, found[0]) if wanted.newest_first else (found[0], high)
    names = {ACTIVE: "page_active", FAILED: "page_failed", CANCELLED: "page_failed"}
    statement = JOBS[names.get(wanted.state, "page") if wanted.state is not None else "page"]
    values = {"space": unit.space, "low": low, "high": high, "task": wanted.task, "grp": wanted.group, "now": now}
    page = unit.db.execute(
        statement.replace(" LIMIT", " DESC LIMIT") if wanted.newest_first else statement,
        {**values, "state": wanted.state or "", "most": wanted.limit},
    ).fetchall()
    numbers = [n for (n,) in page]
    rows = unit.db.execute(JOBS["by_numbers"], (json.dumps(numbers),)).fetchall()
    place = {n: index for index, n in enumerate(numbers)}
    rows.sort(key=lambda columns: place[columns[0]])
    return [row.record(now) for row in _rows(unit, rows)]


def numbers_of(unit: Unit, queue: str, states: Sequence[JobState]) -> list[int]:
    """The jobs of a queue in some states by their numbers."""
    number = _number_of(unit, queue)
    if number is None:
        return []
    now = unit.now()
    found: list[int] = []
    for state in states:
        here = {"first": number << QUEUE, "end": (number + 1) << QUEUE, "space": unit.space, "state": state}
        if state is WAITING:
            rows = unit.db.execute(JOBS["in_lanes"], (number, number, now))
        elif state is DELAYED:
            rows = unit.db.execute(JOBS["delayed"], (number, now))
        elif state is ACTIVE:
            rows = unit.db.execute(JOBS["active"], here)
        else:
            rows = unit.db.execute(JOBS["in_state" if state is COMPLETED else "failed_or_cancelled"], here)
        found += [n for (n,) in rows.fetchall()]
    return found


def _number_of(unit: Unit, queue: str) -> int | None:
    row = unit.db.execute(LANES["queue"], (unit.space, queue)).fetchone()
    return None if row is None else row[0]


def counts(unit: Unit, queue: str) -> dict[str, int]:
    """How many jobs are in each state."""
    return _queue(unit, queue, unit.now()).counts


def queues(unit: Unit) -> list[QueueRecord]:
    """Every queue that has jobs or a pause, by name."""
    now = unit.now()
    names = sorted(name for (name,) in unit.db.execute(LANES["queue_names"], (unit.space,)).fetchall())
    found = [_queue(unit, name, now, with_groups=True) for name in names]
    return [each for each in found if any(each.counts.values()) or read.is_paused(each)]


def _queue(unit: Unit, name: str, now: Micros, with_groups: bool = False) -> QueueRecord:
    counted = {str(state): 0 for state in JobState}
    row = unit.db.execute(LANES["queue"], (unit.space, name)).fetchone()
    if row is None:
        return QueueRecord(name=name, counts=counted, groups=0, paused=False, paused_tasks=(), paused_groups=())
    number, _, _, numbers, settings = row
    counted.update(json.loads(numbers).get("states", {}))
    (due,) = unit.db.execute(LANES["due"], (number, now)).fetchone()
    counted[DELAYED] -= due
    counted[WAITING] += due
    said = json.loads(settings) or {"paused": False, "tasks": [], "groups": []}
    return QueueRecord(
        name=name,
        counts=counted,
        groups=_groups_waiting(unit, number) if with_groups else 0,
        paused=said["paused"],
        paused_tasks=tuple(sorted(said["tasks"])),
        paused_groups=tuple(sorted(said["groups"])),
    )


def _groups_waiting(unit: Unit, queue: int) -> int:
    return int(unit.db.execute(LANES["groups_waiting"], (queue,)).fetchone()[0])


def starts(unit: Unit, queue: str, since: Micros | None) -> list[StartRecord]:
    """The log of starts of a queue."""
    number = _number_of(unit, queue)
    if number is None:
        return []
    if since is None:
        rows = unit.db.execute(JOBS["starts"], (number,)).fetchall()
    else:
        rows = unit.db.execute(JOBS["starts_since"], (number, since)).fetchall()
    return [read_start(row) for row in rows]


def all_starts(unit: Unit) -> list[StartRecord]:
    """The log of starts of every queue, in order."""
    names = unit.db.execute(LANES["queue_names"], (unit.space,)).fetchall()
    found = [start for (name,) in names for start in starts(unit, name, None)]
    return sorted(found, key=lambda start: start.at)


def workers(unit: Unit) -> list[WorkerRecord]:
    """Who serves which queues."""
    rows = unit.db.execute(SPACE["workers"], (unit.space,)).fetchall()
    return [msgspec.json.decode(row[0], type=WorkerRecord) for row in rows]


def standing(unit: Unit, job_id: str) -> Standing:
    """Everything that decides when a job may start."""
    rows = unit.loader.rows([job_id])
    if not rows:
        raise JobNotFound(job_id)
    (row,) = rows
    job = row.job
    unit.state.workers.update((worker.id, worker) for worker in workers(unit))
    unit.workers.update(unit.state.workers)
    queue = unit.state.queue(job.queue)
    ahead = 0
    if row.state in NOT_STARTED:
        unit.loader.ways_back(rows)
        lane = queue.class_for(job.task).lanes.get(job.group)
        if lane is not None:
            place = (unit.numbers[lane], job.priority, row.order)
            (ahead,) = unit.db.execute(LANES["ahead"], place).fetchone()
    groups = _groups_waiting(unit, unit.numbers[queue])
    return unit.run_with(lambda: used(unit, job.group), lambda state: read.standing_of(state, row, ahead, groups))


READS: dict[Callable[..., Any], Callable[..., Any]] = {
    read.get: get,
    read.outcome: outcome,
    read.find: find,
    read.counts: counts,
    read.queues: queues,
    read.starts: starts,
    read.standing: standing,
    extend.workers: workers,
}
"""Steps that look at what may be large, and how it is done in a file."""
