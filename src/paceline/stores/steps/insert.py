"""Step 1, insert: check everything first, then store everything."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import Micros
from paceline.errors import GroupFull, NeverFits
from paceline.job import NewJob
from paceline.limits import Rate
from paceline.limits.rule import cost_under
from paceline.stores.interface import Inserted
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row
from paceline.stores.steps.state import State


def insert(state: State, jobs: Sequence[NewJob]) -> list[Inserted]:
    """All or none: an id or unique key that is taken gives the job that has it."""
    now = state.now()
    rows: list[tuple[Row, bool]] = []
    added: dict[str, Row] = {}
    unique: dict[tuple[str, str], Row] = {}
    sizes: dict[tuple[str, str], int] = {}
    for job in jobs:
        found = _existing(state, job, added, unique, now)
        if found is not None:
            rows.append((found, True))
            continue
        line = state.queue(job.queue)
        if job.cost != 1:
            check_fits(line, job)
        if job.group is not None:
            _count_group(line, job, sizes)
        state.orders += 1
        order = -state.orders if job.lifo else state.orders
        due_at = now + job.delay if job.due_at is None else max(job.due_at, now)
        row = added[job.id] = Row(job, order, now, due_at)
        if job.unique is not None:
            unique[job.queue, job.unique] = row
        rows.append((row, False))
    for row in added.values():
        _store(state, row, now)
    for queue in {row.job.queue for row in added.values()}:
        state.sleepers.wake(queue)
    return [Inserted(row.record(now), existed) for row, existed in rows]


def _existing(
    state: State, job: NewJob, added: dict[str, Row], unique: dict[tuple[str, str], Row], now: Micros
) -> Row | None:
    found = state.rows.get(job.id) or added.get(job.id)
    if found is not None or job.unique is None:
        return found
    found = unique.get((job.queue, job.unique)) or state.queue(job.queue).unique.get(job.unique)
    return found if found is not None and has_key(found, now) else None


def has_key(row: Row, now: Micros) -> bool:
    """True while a live job keeps its unique key from others."""
    return row.job.unique_ttl is None or now < row.created_at + row.job.unique_ttl


def check_fits(line: QueueState, job: NewJob) -> None:
    """Refuse a cost that one of the job's limits never allows."""
    for limit in line.registry.meeting(line.name, job.task):
        if limit.by == "group" and job.group is None:
            continue
        cost = cost_under(job.cost, limit.name)
        for part in line.registry.kind(limit.name, limit.key(job.group)[1]).parts():
            if isinstance(part, Rate) and not part.fits(cost):
                raise NeverFits(limit.name, cost, part.max)


def _count_group(line: QueueState, job: NewJob, sizes: dict[tuple[str, str], int]) -> None:
    assert job.group is not None
    key = (job.queue, job.group)
    if key not in sizes:
        group = line.groups.get(job.group)
        sizes[key] = group.size if group else 0
    if job.group_max_size is not None and sizes[key] >= job.group_max_size:
        raise GroupFull(job.group, sizes[key], job.group_max_size)
    sizes[key] += 1


def _store(state: State, row: Row, now: Micros) -> None:
    job = row.job
    line = state.queue(job.queue)
    state.add(row)
    line.counts[row.state] += 1
    if job.unique is not None:
        line.unique[job.unique] = row
    line.arrive(row, now)
