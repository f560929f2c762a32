"""Step 2, claim: take back dead leases, let time pass, then start as many jobs as all limits allow."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import NEVER, Micros
from paceline.job import FAILED, JobRecord
from paceline.limits.rule import cost_under
from paceline.stores.interface import Ask, Claim, Failed, Finish, Outcome
from paceline.stores.steps.begun import abandon
from paceline.stores.steps.choosing import Choosing
from paceline.stores.steps.finish import end_job, end_run, finish
from paceline.stores.steps.queue_state import QueueState
from paceline.stores.steps.rows import ON_TIME, Row
from paceline.stores.steps.state import Permit, State

MOVED_ANYWAY = 64
"""One claim moves at most two things of each kind per slot, and so many more; then it answers: ask again now."""


def claim(state: State, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
    """The jobs that start now under every limit they meet, and the instant to ask again."""
    now = state.now()
    replayed = _replay(state, ask, now)
    if replayed is not None:
        # What came along was written the first time.
        return Claim(jobs=replayed, now=now, ask_again_at=now)
    registry = state.registry
    also = [registry.meter(registry.require(name).name, None) for name in ask.also]
    lost = finish(state, finishes, now) if finishes else []
    queues = [state.queue(name) for name in ask.queues]
    if ask.tasks is not None:
        _know(state, queues, ask.tasks)
    most = 2 * ask.slots + MOVED_ANYWAY
    choosing = Choosing(now, most, queues, ask.tasks, also, ask.room)
    busy = _let_time_pass(state, queues, choosing, most)
    choosing.most = ask.most
    started: list[Row] = []
    if registry.reserved:
        _serve_reserved(state, ask, choosing, queues, started)
    _take_turns(state, ask, choosing, queues, started)
    guards = [min([meter.guard for meter, _ in row.keys], default=NEVER) for row in started]
    if started:
        state.lease([(row, row.fence) for row in started], now + ask.lease)
    if started or finishes:
        # A claim that did nothing needs no memory: asked again, it is simply asked.
        taken = [(row.job.id, row.fence, guard) for row, guard in zip(started, guards, strict=True)]
        state.last_claims[ask.worker] = (ask.claim_id, taken)
    busy = busy or choosing.budget <= 0
    again = now if busy else _ask_again_at(state, choosing, queues, len(started) < ask.slots)
    for lane in choosing.skipped:
        lane.unpark()
    return Claim(
        jobs=[row.record(now, guard) for row, guard in zip(started, guards, strict=True)],
        now=now,
        ask_again_at=again,
        lost=lost,
        needs_room=choosing.needs_room,
        failed=choosing.failed,
    )


def _let_time_pass(state: State, queues: list[QueueState], choosing: Choosing, most: int) -> bool:
    """Take back dead leases, file what is due, open lanes; True when there is more of it.

    Each has a bound of its own, in each queue: however many of one kind there are, all others still start.
    """
    now = choosing.now
    moved = [take_back(state, now, most, choosing.failed)]
    moved += [line.promote_due(now, most) for line in queues]
    moved += [line.unblock_due(now, most) for line in queues]
    return max(moved) >= most


def take_back(state: State, now: Micros, most: int, failed: list[Failed]) -> int:
    """End leases whose time is over: a dead worker's jobs wait again, its permits are gone. Returns how many."""
    over = state.leases_over(now, most)
    for holder, _ in over:
        if not holder.active:
            continue
        if isinstance(holder, Permit):
            end_permit(state, holder)
            continue
        end_run(state, holder, Outcome.CRASHED, now, error="the worker that ran it died: its lease ended")
        if holder.state is FAILED:
            failed.append(_failed(holder))
    return len(over)


def _failed(row: Row) -> Failed:
    job = row.job
    return Failed(
        id=job.id,
        queue=job.queue,
        task=job.task,
        group=job.group,
        attempts_made=row.attempts_made,
        error=row.error or "",
    )


def end_permit(state: State, permit: Permit) -> None:
    """A permit was given back, or its process died."""
    abandon(state, permit)
    permit.active = False
    del state.permits[permit.id]
    state.free(permit.id, permit.keys)


def _replay(state: State, ask: Ask, now: Micros) -> list[JobRecord] | None:
    """The same claim asked again, because its answer was lost: give those of its jobs that still run."""
    if not ask.claim_id:
        return None
    claim_id, leased = state.last_claims.get(ask.worker, ("", []))
    if claim_id != ask.claim_id:
        return None
    found = [(state.rows.get(job_id), fence, guard) for job_id, fence, guard in leased]
    return [row.record(now, guard) for row, fence, guard in found if row and row.active and row.fence == fence]


def _know(state: State, queues: list[QueueState], tasks: frozenset[str]) -> None:
    """Tasks that some worker does not know form classes of their own, so that they never hide others."""
    for line in queues:
        if tasks not in line.tasksets:
            line.tasksets[tasks] = max(line.tasksets.values(), default=0) + 1
            line.reclassify()


def _take_turns(state: State, ask: Ask, choosing: Choosing, queues: list[QueueState], started: list[Row]) -> None:
    """One job from each queue in turn, until the slots are full or nobody may start."""
    now = choosing.now
    waiting = list(queues)
    while waiting and len(started) < ask.slots:
        for line in tuple(waiting):
            if choosing.also and any(meter.opens_at(1) > now for meter in choosing.also):
                return
            row = line.choose(choosing)
            if choosing.misfits:
                _fail_misfits(state, choosing)
            if row is None:
                waiting.remove(line)
                if choosing.needs_room:
                    return
                continue
            _start(state, ask, choosing, line, row)
            started.append(row)
            if len(started) >= ask.slots:
                return


def _fail_misfits(state: State, choosing: Choosing) -> None:
    """Jobs that cost more than a limit allows since it was lowered can never start."""
    for row, error in choosing.misfits:
        row.error = error
        end_job(state, row, FAILED, choosing.now)
        choosing.failed.append(_failed(row))
    choosing.misfits.clear()


def _start(state: State, ask: Ask, choosing: Choosing, line: QueueState, row: Row) -> None:
    now = choosing.now
    cost = row.job.cost
    keys = row.lane.keys_for(row)
    if choosing.also:
        met = {meter for meter, _ in keys}
        keys = [*keys, *((meter, cost_under(cost, meter.key[0])) for meter in choosing.also if meter not in met)]
    state.fences += 1
    row.fence = state.fences
    line.start(row.lane, row, keys, choosing)
    row.started_at = now
    row.attempts_made += 1
    row.worker = ask.worker
    row.gate = ON_TIME
    row.lease_until = now + ask.lease
    if choosing.room is not None:
        choosing.room -= cost_under(cost, "")


def _serve_reserved(state: State, ask: Ask, choosing: Choosing, queues: list[QueueState], started: list[Row]) -> None:
    """Jobs that a limit is kept free for go first; reservations that no longer hold are given up."""
    now = choosing.now
    for meter in list(state.registry.reserved):
        if meter.reserved_by in state.waiting_permits and now < meter.reserved_deadline:
            meter.reserved_until = meter.reserved_until if meter.reserved_until > now else meter.reserved_deadline
            continue
        row = state.rows.get(meter.reserved_by or "")
        line = state.queue(row.job.queue) if row is not None else None
        if row is None or line is None or not line.still_reserves(meter, row, now):
            meter.reserved_by = None
            state.registry.reserved.pop(meter, None)
            for lane in meter.lanes:
                lane.look_again()
            continue
        keys = row.lane.keys_for(row)
        for other, cost in keys:
            if other.reserved_by is None and other.opens_at(cost) > now:
                other.reserve(row.job.id, cost, now)
                state.registry.reserved[other] = None
        opens = max(other.opens_at(cost) for other, cost in keys)
        meter.reserved_until = min(opens, meter.reserved_deadline) if opens > now else meter.reserved_deadline
        mine = line in queues and len(started) < ask.slots and row.lane.cls in line.visible(choosing)
        mine = mine and all(other.reserved_by in (None, row.job.id) for other, _ in keys)
        if opens <= now and mine and line.consider(row.lane, row, choosing):
            _start(state, ask, choosing, line, row)
            started.append(row)
            state.sleepers.wake_all()


def _ask_again_at(state: State, choosing: Choosing, queues: list[QueueState], idle: bool) -> Micros:
    """When a claim could give more: a limit opens, a delay ends, a lease ends, an override ends."""
    at = min(state.next_lease_end(), state.registry.next_expiry)
    also = max((meter.opens_at(1) for meter in choosing.also), default=0)
    if max([also, *choosing.stuck.values()]) >= NEVER:
        for meter in choosing.also:
            meter.awaited = True
    if not idle:
        return min(at, choosing.now) if also <= choosing.now else min(at, also)
    for line in queues:
        at = min(at, max(line.next_at(choosing), also, choosing.stuck.get(line, 0)))
    # Nothing is claimable now, so an instant that has passed can only be news that came with this very claim.
    return max(at, choosing.now)
