"""Step 4, finish: end a run whose fence is still current, free its slots, and decide where the job goes."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, CANCELLED, COMPLETED, DELAYED, FAILED, WAITING, JobState
from paceline.stores.interface import MAX_CRASHES, Finish, Hold, Outcome
from paceline.stores.steps.begun import abandon, begin
from paceline.stores.steps.registry import LaneMeter
from paceline.stores.steps.rows import OPEN, Row
from paceline.stores.steps.state import State


def finish(state: State, finishes: Sequence[Finish], at: Micros | None = None) -> list[str]:
    """End runs; returns the ids whose lease is lost, for which nothing was changed."""
    now = state.now() if at is None else at
    for hold in (hold for end in finishes for hold in end.holds if hold.create is None):
        state.registry.require(hold.limit)
    lost: list[str] = []
    for end in finishes:
        row = state.rows.get(end.id)
        if row is None or row.state is not ACTIVE or row.fence != end.fence:
            lost.append(end.id)
            continue
        if row.gate == OPEN:
            # Whoever ends a run has begun it, or would not know.
            begin(state, row, now)
        for hold in end.holds:
            hold_key(state, hold, now, row.started_at)
        due_at = _due_at(state, row, end, now) if end.outcome is Outcome.RETRY else now
        end_run(state, row, end.outcome, now, due_at=due_at, result=end.result, error=end.error)
    return lost


def hold_key(state: State, hold: Hold, now: Micros, started_at: Micros | None = None) -> None:
    """Hold one key; without a time the limit's own backoff decides."""
    if hold.create is not None and hold.limit not in state.registry.limits:
        state.registry.declare([hold.create])
        state.reclassify()
    limit = state.registry.require(hold.limit)
    meters: list[LaneMeter]
    if limit.by == "group" and hold.group is None:
        meters = state.registry.meters_of(hold.limit)
        until = hold.until if hold.until is not None else now + (hold.for_ or 0)
        state.registry.hold_all(hold.limit, until, hold.reason)
    else:
        meters = [state.registry.require_key(hold.limit, hold.group)]
    for meter in meters:
        if hold.until is not None:
            meter.hold(hold.until, now, hold.reason)
        elif hold.for_ is not None:
            meter.hold(now + hold.for_, now, hold.reason)
        else:
            meter.refuse(limit.backoff, hold.jitter, now, hold.reason, started_at)


def drop_reservations(state: State, holder: str) -> None:
    """Whoever kept room free does not need it any more: others may have it."""
    state.waiting_permits.discard(holder)
    given_up = [meter for meter in state.registry.reserved if meter.reserved_by in (holder, None)]
    for meter in given_up:
        meter.reserved_by = None
        del state.registry.reserved[meter]
        for lane in meter.lanes:
            lane.look_again()
    if given_up:
        state.sleepers.wake_all()


def end_run(
    state: State,
    row: Row,
    outcome: Outcome,
    now: Micros,
    *,
    due_at: Micros = 0,
    result: bytes | None = None,
    error: str | None = None,
) -> None:
    """Take an active job out of its run. A job that somebody cancelled ends cancelled, whatever its handler did."""
    abandon(state, row)
    keys, row.keys = row.keys, ()
    if outcome is Outcome.COMPLETED:
        for meter, _ in keys:
            if meter.refusals:
                meter.succeeded(row.started_at or 0)
    state.free(row.job.id, keys)
    row.worker = None
    if error is not None:
        row.error = error
    if row.cancel_asked:
        end_job(state, row, CANCELLED, now)
    elif outcome is Outcome.COMPLETED:
        row.result = result
        row.error = None
        row.progress = 100
        end_job(state, row, COMPLETED, now)
    elif outcome is Outcome.FAILED:
        end_job(state, row, FAILED, now)
    elif outcome is Outcome.CANCELLED:
        end_job(state, row, CANCELLED, now)
    else:
        _go_back(state, row, outcome, now, due_at)


def end_job(state: State, row: Row, final: JobState, now: Micros) -> None:
    """A final state: the unique key is free, those who wait are told, and `keep=0` removes the job."""
    line = state.queue(row.job.queue)
    line.set_state(row, final)
    row.finished_at = now
    job = row.job
    if job.unique is not None and line.unique.get(job.unique) is row:
        del line.unique[job.unique]
    if state.sleepers.waiters:
        state.sleepers.finished(job.id, row.record(now))
    counts = line.counts
    if not (counts[WAITING] or counts[ACTIVE] or counts[DELAYED]):
        # Workers that run until the queue is empty sleep until somebody else's job ends.
        state.sleepers.emptied(job.queue)
    if job.keep == 0:
        line.counts[final] -= 1
        state.discard(row)


def _go_back(state: State, row: Row, outcome: Outcome, now: Micros, due_at: Micros) -> None:
    """Wait again: a retry at its time, everything else at once and in its old place."""
    if outcome is not Outcome.RETRY:
        row.attempts_made -= 1
    if outcome is Outcome.RETURNED:
        row.returns += 1
    if outcome is Outcome.CRASHED:
        row.crashes += 1
        if row.crashes >= MAX_CRASHES:
            row.error = f"crashed: it took down its worker {row.crashes} times ({row.error})"
            end_job(state, row, FAILED, now)
            return
    row.due_at = max(due_at, now) if outcome is Outcome.RETRY else now
    state.queue(row.job.queue).arrive(row, now)
    state.sleepers.wake(row.job.queue)


def _due_at(state: State, row: Row, end: Finish, now: Micros) -> Micros:
    if end.at is not None:
        return end.at
    if end.when_open:
        # A slot that is taken opens at no known time: the job is then simply due.
        opens: list[Micros] = [meter.opens_in_time(cost) for meter, cost in row.keys if state.registry.knows(meter)]
        # And a limit that was lowered below the cost never does: the next claim says so.
        return max([now, *(at for at in opens if at < NEVER)])
    return now + end.after
