"""Step 2, claim: take back dead leases, let time pass, then start as many jobs as all limits allow."""

from __future__ import annotations

from heapq import heappop, heappush

from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, JobRecord
from paceline.limits.rule import cost_under
from paceline.stores.interface import Ask, Claim, Outcome
from paceline.stores.memory.finish import end_run
from paceline.stores.memory.line import Choosing, Line
from paceline.stores.memory.rows import Row
from paceline.stores.memory.state import State


def claim(state: State, ask: Ask, lost: list[str]) -> Claim:
    """The jobs that start now under every limit they meet, and the instant to ask again."""
    now = state.now()
    replayed = _replay(state, ask, now)
    if replayed is not None:
        return Claim(jobs=replayed, now=now, ask_again_at=now, lost=lost)
    lines = [state.line(name) for name in ask.queues]
    if ask.tasks is not None:
        _know(state, lines, ask.tasks)
    budget = 2 * ask.slots + 64
    budget -= take_back(state, now, budget)
    for line in lines:
        budget -= line.promote_due(now, budget)
    registry = state.registry
    also = [registry.meter(registry.require(name).name, None) for name in ask.also]
    choosing = Choosing(now, budget, ask.tasks, also, ask.room)
    for line in lines:
        line.unblock_due(choosing)
    jobs: list[JobRecord] = []
    if registry.reserved:
        _serve_reserved(state, ask, choosing, lines, jobs)
    _take_turns(state, ask, choosing, lines, jobs)
    state.last_claims[ask.worker] = (ask.claim_id, [(job.id, job.fence) for job in jobs])
    again = now if choosing.budget <= 0 else _ask_again_at(state, choosing, lines, len(jobs) < ask.slots)
    return Claim(jobs=jobs, now=now, ask_again_at=again, lost=lost, needs_room=choosing.needs_room)


def take_back(state: State, now: Micros, most: int) -> int:
    """End leases whose time is over: a dead worker's jobs wait again, its permits are gone. Returns how many."""
    ends = state.lease_ends
    taken = 0
    while ends and ends[0][0] <= now and taken < most:
        _, holder, fence = heappop(ends)
        row = state.rows.get(holder)
        if row is not None:
            if row.state is ACTIVE and row.fence == fence and row.lease_until <= now:
                end_run(state, row, Outcome.CRASHED, now, error="the worker that ran it died: its lease ended")
                taken += 1
            continue
        permit = state.permits.get(holder)
        if permit is not None and permit.lease_until <= now:
            del state.permits[holder]
            state.free(holder, permit.keys)
            taken += 1
    return taken


def next_lease_end(state: State) -> Micros:
    """When the first live lease ends, unless it is prolonged."""
    ends = state.lease_ends
    while ends:
        until, holder, fence = ends[0]
        row = state.rows.get(holder)
        if row is not None:
            if row.state is ACTIVE and row.fence == fence and row.lease_until == until:
                return until
        else:
            permit = state.permits.get(holder)
            if permit is not None and permit.lease_until == until:
                return until
        heappop(ends)
    return NEVER


def _replay(state: State, ask: Ask, now: Micros) -> list[JobRecord] | None:
    """The same claim asked again, because its answer was lost: give those of its jobs that still run."""
    if not ask.claim_id:
        return None
    claim_id, leases = state.last_claims.get(ask.worker, ("", []))
    if claim_id != ask.claim_id:
        return None
    rows = [(state.rows.get(job_id), fence) for job_id, fence in leases]
    return [row.record(now) for row, fence in rows if row is not None and row.state is ACTIVE and row.fence == fence]


def _know(state: State, lines: list[Line], tasks: frozenset[str]) -> None:
    """Tasks that some worker does not know form classes of their own, so that they never hide others."""
    for line in lines:
        if tasks not in line.tasksets:
            line.tasksets[tasks] = max(line.tasksets.values(), default=0) + 1
            line.reclassify()


def _take_turns(state: State, ask: Ask, choosing: Choosing, lines: list[Line], jobs: list[JobRecord]) -> None:
    """One job from each queue in turn, until the slots are full or nobody may start."""
    now = choosing.now
    waiting = list(lines)
    while waiting and len(jobs) < ask.slots:
        for line in tuple(waiting):
            if any(meter.opens_at(1) > now for meter in choosing.also):
                return
            row = line.choose(choosing)
            if row is None:
                waiting.remove(line)
                if choosing.needs_room:
                    return
                continue
            jobs.append(_start(state, ask, choosing, line, row))
            if len(jobs) >= ask.slots:
                return


def _start(state: State, ask: Ask, choosing: Choosing, line: Line, row: Row) -> JobRecord:
    now = choosing.now
    cost = row.job.cost
    keys = row.lane.keys_for(row)
    if choosing.also:
        keys = [*keys, *((meter, cost_under(cost, meter.key[0])) for meter in choosing.also)]
    line.start(row.lane, row, keys, now)
    row.started_at = now
    row.attempts_made += 1
    row.fence += 1
    row.worker = ask.worker
    row.lease_until = now + ask.lease
    heappush(state.lease_ends, (row.lease_until, row.job.id, row.fence))
    if choosing.room is not None:
        choosing.room -= cost_under(cost, "")
    return row.record(now)


def _serve_reserved(state: State, ask: Ask, choosing: Choosing, lines: list[Line], jobs: list[JobRecord]) -> None:
    """Jobs that a limit is kept free for go first; reservations that no longer hold are given up."""
    now = choosing.now
    for meter in list(state.registry.reserved):
        row = state.rows.get(meter.reserved_by or "")
        line = state.lines[row.job.queue] if row is not None else None
        if row is None or line is None or not line.still_reserves(meter, row, now):
            meter.reserved_by = None
            state.registry.reserved.pop(meter, None)
            continue
        opens = max(other.opens_at(cost) for other, cost in row.lane.keys_for(row))
        meter.reserved_until = opens if opens > now else meter.reserved_deadline
        mine = line in lines and len(jobs) < ask.slots and row.lane.cls in line.visible(ask.tasks)
        if opens <= now and mine and line.consider(row.lane, row, choosing):
            jobs.append(_start(state, ask, choosing, line, row))
            state.listeners.wake_all()


def _ask_again_at(state: State, choosing: Choosing, lines: list[Line], idle: bool) -> Micros:
    """When a claim could give more: a limit opens, a delay ends, a lease ends, an override ends."""
    at = min(next_lease_end(state), state.registry.next_expiry)
    also = max((meter.opens_at(1) for meter in choosing.also), default=0)
    if also >= NEVER:
        for meter in choosing.also:
            meter.awaited = True
    if not idle:
        return min(at, choosing.now) if also <= choosing.now else min(at, also)
    for line in lines:
        at = min(at, max(line.next_at(choosing), also))
    # Nothing is claimable now, so an instant that has passed can only be news that came with this very claim.
    return max(at, choosing.now)
