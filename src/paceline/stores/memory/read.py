"""Looking without changing: one job, a page of jobs, counts, where a job stands."""

from __future__ import annotations

from itertools import islice

from paceline.clock import Micros
from paceline.errors import JobNotFound
from paceline.job import DELAYED, NOT_STARTED, WAITING, JobRecord, JobState
from paceline.limits.admission import earliest_start
from paceline.limits.rule import cost_under
from paceline.stores.interface import Filter, Standing, StartRecord
from paceline.stores.memory.lanes import Keys
from paceline.stores.memory.limits import usage_of
from paceline.stores.memory.line import Line
from paceline.stores.memory.rows import Row
from paceline.stores.memory.state import State


def find(state: State, wanted: Filter) -> list[JobRecord]:
    """A page of jobs in the order they were added."""
    now = state.now()
    line = state.lines.get(wanted.queue)
    if line is None:
        return []
    rows = iter(line.rows.values())
    if wanted.after is not None:
        if wanted.after not in line.rows:
            raise JobNotFound(wanted.after)
        for row in rows:
            if row.job.id == wanted.after:
                break
    matching = (
        row.record(now)
        for row in rows
        if (wanted.state is None or row.seen(now) is wanted.state)
        and (wanted.task is None or row.job.task == wanted.task)
        and (wanted.group is None or row.job.group == wanted.group)
    )
    return list(islice(matching, wanted.limit))


def counts(state: State, queue: str) -> dict[str, int]:
    """How many jobs are in each state."""
    line = state.lines.get(queue)
    found = {str(name): 0 for name in JobState}
    if line is not None:
        now = state.now()
        found.update({str(name): number for name, number in line.counts.items()})
        due = sum(1 for entry in line.delayed if entry[2].entry is entry and entry[0] <= now)
        found[DELAYED] -= due
        found[WAITING] += due
    return found


def starts(state: State, queue: str, since: Micros | None) -> list[StartRecord]:
    """The log of starts of a queue."""
    line = state.lines.get(queue)
    return [] if line is None else [start for start in line.starts if since is None or start.at >= since]


def standing(state: State, job_id: str) -> Standing:
    """Everything that decides when a job may start."""
    row = state.row(job_id)
    now = state.now()
    line = state.lines[row.job.queue]
    waits = row.state in NOT_STARTED
    meters = _meters(state, line, row) if waits else []
    ahead = _ahead(line, row, now) if waits else 0
    return Standing(
        job=row.record(now),
        now=now,
        paused=_paused(line, row),
        known=_known(state, row),
        keys=[usage_of(state, meter, cost, now) for meter, cost in meters],
        ahead=ahead,
        groups=sum(1 for group in line.groups.values() if group.waiting),
        earliest=earliest_start(meters, ahead, max(now, row.due_at)) if waits else None,
    )


def _paused(line: Line, row: Row) -> list[str]:
    paused = [f"queue {line.name!r}"] if line.paused else []
    if row.job.task in line.paused_tasks:
        paused.append(f"task {row.job.task!r}")
    if row.job.group in line.paused_groups:
        paused.append(f"group {row.job.group!r}")
    return paused


def _known(state: State, row: Row) -> bool:
    workers = [worker for worker in state.workers.values() if row.job.queue in worker.queues]
    return not workers or any(worker.tasks is None or row.job.task in worker.tasks for worker in workers)


def _meters(state: State, line: Line, row: Row) -> Keys:
    registry = state.registry
    group = row.job.group
    met = [limit for limit in registry.meeting(line.name, row.job.task) if limit.by is None or group is not None]
    return [(registry.meter(*limit.key(group)), cost_under(row.job.cost, limit.name)) for limit in met]


def _ahead(line: Line, row: Row, now: Micros) -> int:
    """How many jobs of the same group under the same limits go first."""
    if row.seen(now) is DELAYED:
        return 0
    place = (row.job.priority, row.order)
    lane = line.class_for(row.job.task).lanes.get(row.job.group)
    waiting = lane.rows() if lane is not None else []
    return sum(1 for other in waiting if (other.job.priority, other.order) < place)
