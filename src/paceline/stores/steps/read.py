"""Looking without changing: one job, a page of jobs, counts, where a job stands."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import Micros
from paceline.errors import JobNotFound
from paceline.job import DELAYED, FINISHED, NOT_STARTED, WAITING, JobRecord, JobState
from paceline.limits.admission import earliest_start
from paceline.limits.rule import cost_under
from paceline.stores.interface import Filter, QueueRecord, Standing, StartRecord
from paceline.stores.steps.lanes import Keys
from paceline.stores.steps.limits import usage_of, without_dead_leases
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row
from paceline.stores.steps.state import State


def get(state: State, ids: Sequence[str]) -> list[JobRecord]:
    """The jobs that exist, in the order asked."""
    now = state.now()
    rows = [state.rows.get(job_id) for job_id in ids]
    return [row.record(now) for row in rows if row is not None]


def outcome(state: State, job_id: str) -> tuple[Micros, JobRecord | None]:
    """The time, and the job if it is in a final state."""
    row = state.row(job_id)
    now = state.now()
    return now, row.record(now) if row.state in FINISHED else None


def find(state: State, wanted: Filter) -> list[JobRecord]:
    """A page of jobs in the order they were added."""
    now = state.now()
    if state.queues.get(wanted.queue) is None:
        return []
    if wanted.after is not None and state.row(wanted.after).job.queue != wanted.queue:
        raise JobNotFound(wanted.after)
    return [row.record(now) for row in state.page(wanted, now)]


def counts(state: State, queue: str) -> dict[str, int]:
    """How many jobs are in each state."""
    line = state.queues.get(queue)
    found = {str(name): 0 for name in JobState}
    if line is not None:
        now = state.now()
        found.update({str(name): number for name, number in line.counts.items()})
        due = line.due_but_delayed(now)
        found[DELAYED] -= due
        found[WAITING] += due
    return found


def queues(state: State) -> list[QueueRecord]:
    """Every queue that has jobs or a pause, by name."""
    found = [
        QueueRecord(
            name=line.name,
            counts=counts(state, line.name),
            groups=line.groups_waiting(),
            paused=line.paused,
            paused_tasks=tuple(sorted(line.paused_tasks)),
            paused_groups=tuple(sorted(line.paused_groups)),
        )
        for line in sorted(state.all_queues(), key=lambda line: line.name)
    ]
    return [each for each in found if any(each.counts.values()) or is_paused(each)]


def is_paused(queue: QueueRecord) -> bool:
    return queue.paused or bool(queue.paused_tasks or queue.paused_groups)


def starts(state: State, queue: str, since: Micros | None) -> list[StartRecord]:
    """The log of starts of a queue."""
    line = state.queues.get(queue)
    return [] if line is None else line.starts_since(since)


def all_starts(state: State) -> list[StartRecord]:
    """The log of starts of every queue, in order."""
    found = [start for line in state.all_queues() for start in line.starts_since(None)]
    return sorted(found, key=lambda start: start.at)


def standing(state: State, job_id: str) -> Standing:
    """Everything that decides when a job may start."""
    row = state.row(job_id)
    line = state.queue(row.job.queue)
    ahead = line.ahead_of(row) if row.state in NOT_STARTED else 0
    return standing_of(state, row, ahead, line.groups_waiting())


def standing_of(state: State, row: Row, ahead: int, groups: int) -> Standing:
    """The same, when it is known how many jobs of its lane go before it, and how many groups have waiting jobs."""
    now = state.now()
    line = state.queue(row.job.queue)
    waits = row.state in NOT_STARTED
    meters = _meters(state, line, row) if waits else []
    ahead = ahead if waits and row.seen(now) is not DELAYED else 0
    with without_dead_leases(state, [meter for meter, _ in meters], now):
        earliest = earliest_start(meters, ahead, max(now, row.due_at)) if waits else None
    return Standing(
        job=row.record(now),
        now=now,
        paused=_paused(line, row),
        known=_known(state, row),
        keys=[usage_of(state, meter, cost, now) for meter, cost in meters],
        ahead=ahead,
        groups=groups,
        earliest=earliest,
    )


def _paused(line: QueueState, row: Row) -> list[str]:
    paused = [f"queue {line.name!r}"] if line.paused else []
    if row.job.task in line.paused_tasks:
        paused.append(f"task {row.job.task!r}")
    if row.job.group in line.paused_groups:
        paused.append(f"group {row.job.group!r}")
    return paused


def _known(state: State, row: Row) -> bool:
    workers = [worker for worker in state.workers.values() if row.job.queue in worker.queues]
    return not workers or any(worker.tasks is None or row.job.task in worker.tasks for worker in workers)


def _meters(state: State, line: QueueState, row: Row) -> Keys:
    registry = state.registry
    group = row.job.group
    met = [limit for limit in registry.meeting(line.name, row.job.task) if limit.by is None or group is not None]
    return [(registry.meter(*limit.key(group)), cost_under(row.job.cost, limit.name)) for limit in met]
