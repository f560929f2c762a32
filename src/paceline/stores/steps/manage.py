"""What operators do to jobs and queues: move, pause, drain, clean, obliterate, prune."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import Micros
from paceline.errors import MoveNotAllowed
from paceline.job import ACTIVE, CANCELLED, DELAYED, MOVES, NOT_STARTED, WAITING, JobState, Move
from paceline.stores.steps.begun import abandon
from paceline.stores.steps.finish import drop_reservations, end_job
from paceline.stores.steps.insert import has_key
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import Row
from paceline.stores.steps.state import State

STARTS_KEPT = 100_000
"""So many starts of a queue are kept to look at, beyond those that limits still count."""


def move(state: State, ids: Sequence[str], wanted: Move) -> None:
    """All or none: every job is checked before the first one moves."""
    now = state.now()
    rows = [state.row(job_id) for job_id in dict.fromkeys(ids)]
    for row in rows:
        seen = row.seen(now)
        if seen not in MOVES[wanted]:
            raise MoveNotAllowed(row.job.id, seen, wanted)
    if wanted is Move.RETRY:
        _refuse_second_lives(state, rows, now)
    for row in rows:
        _move_one(state, row, wanted, now)


def move_all(state: State, queue: str, from_state: JobState, wanted: Move) -> int:
    """The same move for every job of a queue that is in one state."""
    now = state.now()
    if from_state not in MOVES[wanted]:
        raise MoveNotAllowed(queue, from_state, wanted)
    return move_rows(state, state.jobs_of(state.queue(queue), from_state, now), from_state, wanted)


def move_rows(state: State, rows: list[Row], from_state: JobState, wanted: Move) -> int:
    """The same move for those of some jobs that are in one state."""
    now = state.now()
    moved = 0
    for row in rows:
        if row.seen(now) is from_state and not (wanted is Move.RETRY and _key_holder(state, row, now)):
            _move_one(state, row, wanted, now)
            moved += 1
    return moved


def _key_holder(state: State, row: Row, now: Micros) -> Row | None:
    """The other live job that has the unique key of this one."""
    held = state.queue(row.job.queue).unique.get(row.job.unique) if row.job.unique is not None else None
    return held if held is not None and held is not row and has_key(held, now) else None


def _refuse_second_lives(state: State, rows: list[Row], now: Micros) -> None:
    """A finished job whose unique key another one has since, or takes in the same move, stays finished."""
    taken: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.job.unique is not None:
            first = taken.setdefault((row.job.queue, row.job.unique), row)
            holder = first if first is not row else _key_holder(state, row, now)
            if holder is not None:
                raise MoveNotAllowed(row.job.id, row.seen(now), Move.RETRY, holder.job.id)


def _move_one(state: State, row: Row, wanted: Move, now: Micros) -> None:
    line = state.queue(row.job.queue)
    if state.registry.reserved:
        drop_reservations(state, row.job.id)
    if wanted is Move.CANCEL:
        if row.state is ACTIVE:
            row.cancel_asked = True
            state.sleepers.ask_heartbeat(row.worker)
        else:
            line.leave(row)
            end_job(state, row, CANCELLED, now)
    elif wanted is Move.PROMOTE:
        line.leave(row)
        row.due_at = now
        line.arrive(row, now)
    elif wanted is Move.RETRY:
        _reset(row, now)
        if row.job.unique is not None:
            line.unique[row.job.unique] = row
        line.arrive(row, now)
    else:
        remove(state, line, row)
    state.sleepers.wake(row.job.queue)


def _reset(row: Row, now: Micros) -> None:
    """A finished job starts over: what its earlier life left is forgotten, its id and place are kept."""
    row.attempts_made = row.crashes = row.returns = 0
    row.progress = 0
    row.message = row.result = row.error = row.started_at = row.finished_at = None
    row.cancel_asked = False
    row.due_at = now


def remove(state: State, line: QueueState, row: Row) -> None:
    """Delete a job that does not run."""
    if row.state in NOT_STARTED:
        line.leave(row)
        if state.registry.reserved:
            drop_reservations(state, row.job.id)
    # Whoever still holds a lease of it holds nothing.
    row.fence = -1
    line.counts[row.state] -= 1
    if row.job.unique is not None and line.unique.get(row.job.unique) is row:
        del line.unique[row.job.unique]
    state.discard(row)
    state.sleepers.removed(row.job.id)


def drain(state: State, queue: str) -> int:
    """Remove what has not started."""
    line = state.queue(queue)
    now = state.now()
    return drain_rows(state, queue, [*state.jobs_of(line, WAITING, now), *state.jobs_of(line, DELAYED, now)])


def drain_rows(state: State, queue: str, rows: list[Row]) -> int:
    """Remove those of some jobs that have not started."""
    found = [row for row in rows if row.state in NOT_STARTED]
    for row in found:
        remove(state, state.queue(queue), row)
    state.sleepers.wake(queue)
    return len(found)


def clean(state: State, queue: str, wanted: JobState, older_than: Micros) -> int:
    """Remove jobs that came into this state longer ago; running ones are never removed."""
    if wanted is ACTIVE:
        raise MoveNotAllowed(queue, ACTIVE, "clean")
    return clean_rows(state, queue, state.jobs_of(state.queue(queue), wanted, state.now()), wanted, older_than)


def clean_rows(state: State, queue: str, rows: list[Row], wanted: JobState, older_than: Micros) -> int:
    """Remove those of some jobs that came into a state longer ago."""
    now = state.now()
    found = [row for row in rows if row.seen(now) is wanted and now - _since(row, now) > older_than]
    for row in found:
        remove(state, state.queue(queue), row)
    return len(found)


def _since(row: Row, now: Micros) -> Micros:
    if row.finished_at is not None:
        return row.finished_at
    return row.created_at if row.state is DELAYED and row.due_at > now else row.due_at


def obliterate(state: State, queue: str, force: bool) -> int:
    """Remove the queue: jobs, pauses, turns, the log of starts and the counters of limits that cover it alone.

    Holds stay: they last until they pass or are released.
    """
    line = state.queue(queue)
    if not force:
        refuse_active(line)
    rows = state.jobs_of(line, None, state.now())
    for row in rows:
        if row.state is ACTIVE:
            abandon(state, row)
            keys, row.keys = row.keys, ()
            state.free(row.job.id, keys)
        remove(state, line, row)
    del state.queues[queue]
    for limit in state.registry.limits.values():
        if limit.queues == frozenset({queue}):
            for meter in state.registry.meters_of(limit.name):
                state.registry.forget_starts(meter)
    state.sleepers.wake(queue)
    return len(rows)


def refuse_active(line: QueueState) -> None:
    """A queue that works is not removed by accident."""
    if line.counts[ACTIVE]:
        what = "obliterate while active jobs exist (stop the workers or use force=True)"
        raise MoveNotAllowed(line.name, ACTIVE, what)


def pause(state: State, queue: str, task: str | None, group: str | None, paused: bool) -> None:
    """Pause or resume a queue, one of its tasks or one of its groups; what runs goes on."""
    line = state.queue(queue)
    if group is not None:
        line.pause_group(group, paused)
    if task is not None:
        (line.paused_tasks.add if paused else line.paused_tasks.discard)(task)
        line.reclassify()
    if group is None and task is None:
        line.paused = paused
    state.sleepers.wake(queue)


def prune(state: State) -> int:
    """Remove finished jobs after their `keep`, old starts, and what idle groups and limits left behind."""
    now = state.now()
    over = remove_rows(state, state.kept_too_long(now))
    oldest = now - state.registry.longest_window()
    for line in state.all_queues():
        line.forget_starts(oldest, STARTS_KEPT)
        line.forget_idle_groups()
    state.registry.forget_idle(now)
    return over


def remove_rows(state: State, rows: list[Row]) -> int:
    """Delete jobs that do not run."""
    for row in rows:
        remove(state, state.queue(row.job.queue), row)
    return len(rows)
