"""What each step needs at hand: loaded before it runs, and bounded by what it may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.clock import Micros
from paceline.job import Move, NewJob
from paceline.limits import Limit
from paceline.stores.interface import Ask, Begun, Finish, Hold, Lease, Note, Outcome, Override, Target, WorkerRecord
from paceline.stores.steps import begun, claim, extend, finish, gate, insert, limits, manage
from paceline.stores.steps.registry import reconciled
from paceline.stores.steps.rows import Row

if TYPE_CHECKING:
    from paceline.stores.sqlite.unit import Unit

FINAL = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED})
TAKEN_BACK = 64
"""So many leases that are over are taken back by a permit that is asked for."""
ALL = 1_000_000


def _insert(unit: Unit, jobs: Sequence[NewJob]) -> None:
    unit.loader.rows(job.id for job in jobs)
    by_queue: dict[str, list[NewJob]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    for name, added in by_queue.items():
        queue = unit.lanes.queue(name)
        unit.lanes.shared_meters(name, [job.task for job in added])
        unit.lanes.group_meters(name, added)
        if queue is not None:
            unit.lanes.groups(queue, [job.group for job in added])
            unit.loader.unique((queue, job.unique) for job in added if job.unique is not None)


def _claim(unit: Unit, ask: Ask, finishes: Sequence[Finish] = ()) -> None:
    state = unit.state
    now = state.now()
    if ask.claim_id:
        unit.loader.last_claim(ask.worker)
        claim_id, leased = state.last_claims.get(ask.worker, ("", []))
        if claim_id == ask.claim_id:
            unit.loader.rows(job_id for job_id, *_ in leased)
            return
    unit.lanes.page = max(ask.slots, 4)
    unit.meters.load((name, None) for name in ask.also if name in state.registry.limits)
    queues = unit.asked_queues = unit.lanes.queues(ask.queues)
    _finish(unit, finishes)
    if ask.tasks is not None:
        unit.lanes.to_reclassify([queue for queue in queues if ask.tasks not in queue.tasksets])
    most = 2 * ask.slots + claim.MOVED_ANYWAY
    unit.loader.leases(now, most, len(finishes))
    for queue in queues:
        unit.loader.due(queue, now, most)
    unit.loader.reserved()


def _finish(unit: Unit, finishes: Sequence[Finish], at: Micros | None = None) -> None:
    rows = unit.loader.rows(end.id for end in finishes)
    goes_back = {end.id for end in finishes if end.outcome not in FINAL}
    _ended(unit, rows, [row for row in rows if row.job.id in goes_back])
    unit.loader.starts(row for row in rows if row.gate)
    _hold(unit, [hold for end in finishes for hold in end.holds])


def _ended(unit: Unit, rows: Iterable[Row], back: Sequence[Row]) -> None:
    """Runs that may end: who waits for their slots, and where those go that wait again."""
    for row in rows:
        unit.lanes.parked_under(row.keys)
    unit.loader.ways_back(back)


def _decide_again(unit: Unit, leases: Sequence[Lease]) -> None:
    rows = unit.loader.rows(lease.id for lease in leases)
    unit.loader.permits(lease.id for lease in leases)
    unit.lanes.lanes_under(meter for row in rows for meter, _ in row.keys)
    _ended(unit, (), rows)
    unit.loader.starts(rows)


def _begun(unit: Unit, said: Sequence[Begun]) -> None:
    rows = unit.loader.rows(each.id for each in said)
    unit.loader.permits(each.id for each in said)
    for row in rows:
        unit.lanes.parked_under(row.keys)
    for permit in unit.state.permits.values():
        unit.lanes.parked_under(permit.keys)
    unit.loader.starts(rows)


def _extend(unit: Unit, worker: str, leases: Sequence[Lease], lease: Micros) -> None:
    unit.loader.worker(worker)
    unit.loader.rows(held.id for held in leases)
    unit.loader.permits(held.id for held in leases if held.id not in unit.state.rows)


def _note(unit: Unit, notes: Sequence[Note]) -> None:
    unit.loader.rows(said.id for said in notes)


def _register(unit: Unit, worker: WorkerRecord) -> None:
    unit.loader.worker(worker.id)


def _unregister(unit: Unit, worker: str) -> None:
    unit.loader.worker(worker)
    unit.loader.last_claim(worker)


def _move(unit: Unit, ids: Sequence[str], wanted: Move) -> None:
    moved(unit, unit.loader.rows(ids))


def moved(unit: Unit, rows: Sequence[Row]) -> None:
    """Jobs that an operator moves: each in its place, with the group it may join again."""
    unit.loader.place(rows)
    _ended(unit, (), rows)
    unit.loader.reserved()


def _set_limits(unit: Unit, declared: Sequence[Limit]) -> None:
    known = unit.state.registry.limits
    changed = [limit for limit in declared if known.get(limit.name) != reconciled(limit, known.get(limit.name))]
    if changed:
        unit.lanes.to_reclassify(unit.lanes.all_queues())
    for limit in changed:
        unit.lanes.limit(limit.name)


def _drop_limit(unit: Unit, name: str) -> None:
    unit.lanes.to_reclassify(unit.lanes.all_queues())
    unit.lanes.limit(name)


def _override(unit: Unit, wanted: Override, for_: Micros | None) -> None:
    unit.lanes.limit(wanted.limit)


def _lift(unit: Unit, name: str, group: str | None) -> None:
    unit.lanes.limit(name)


def _hold(unit: Unit, holds: Sequence[Hold]) -> None:
    known = unit.state.registry.limits
    for hold in holds:
        limit = known.get(hold.limit)
        if limit is None:
            unit.lanes.to_reclassify(unit.lanes.all_queues())
        elif limit.by == "group" and hold.group is None:
            unit.meters.load_limit(hold.limit)
        else:
            unit.meters.load([(hold.limit, hold.group)])


def _release(unit: Unit, name: str, group: str | None) -> None:
    _key(unit, name, group) if group is not None else unit.lanes.limit(name)


def _key(unit: Unit, name: str, group: str | None) -> None:
    unit.meters.load([(name, group)])
    unit.lanes.lanes_under(unit.state.registry.meters_of(name))


def _acquire(
    unit: Unit,
    targets: Sequence[Target],
    permit: str,
    lease: Micros,
    force: bool,
    waits: bool,
    late: Micros | None = None,
) -> None:
    state = unit.state
    known = state.registry.limits
    unit.meters.load((target.limit, target.group) for target in targets if target.limit in known)
    unit.loader.permits([permit])
    unit.loader.leases(state.now(), TAKEN_BACK)
    if late is not None:
        meters = [state.registry.meters.get((target.limit, target.group)) for target in targets]
        unit.lanes.lanes_under(meter for meter in meters if meter is not None)
    _held(unit, [permit])


def _give_back(unit: Unit, permits: Sequence[str]) -> None:
    unit.loader.permits(permits)
    _held(unit, permits)


def _held(unit: Unit, permits: Iterable[str]) -> None:
    unit.loader.reserved()
    held = unit.state.permits
    for permit in permits:
        if permit in held:
            unit.lanes.parked_under(held[permit].keys)


def _usage(unit: Unit, name: str, group: str | None) -> None:
    if name in unit.state.registry.limits:
        unit.meters.load([(name, group)])
        used(unit, group)


def used(unit: Unit, group: str | None) -> None:
    """How full keys are: what waits under them in any queue, and leases that are over."""
    for queue in unit.lanes.all_queues():
        unit.lanes.groups(queue, [group])
    unit.loader.leases(unit.state.now(), ALL)


def _pause(unit: Unit, queue: str, task: str | None, group: str | None, paused: bool) -> None:
    found = unit.lanes.queue(queue)
    if found is not None:
        unit.lanes.groups(found, [group] if group is not None else [])
        if task is not None:
            unit.lanes.to_reclassify([found])


def _obliterate(unit: Unit, queue: str, force: bool) -> None:
    found = unit.lanes.queue(queue)
    unit.lanes.bring_all_back()
    if found is not None:
        rows = unit.loader.rows_of(found)
        moved(unit, rows)
        for row in rows:
            unit.lanes.parked_under(row.keys)
    for limit in unit.state.registry.limits.values():
        if limit.queues == frozenset({queue}):
            unit.meters.load_limit(limit.name)


NEEDS: dict[Callable[..., Any], Callable[..., None]] = {
    insert.insert: _insert,
    claim.claim: _claim,
    finish.finish: _finish,
    gate.decide_again: _decide_again,
    begun.begun: _begun,
    extend.extend: _extend,
    extend.note: _note,
    extend.register: _register,
    extend.unregister: _unregister,
    manage.move: _move,
    manage.obliterate: _obliterate,
    manage.pause: _pause,
    limits.set_limits: _set_limits,
    limits.drop_limit: _drop_limit,
    limits.override: _override,
    limits.lift: _lift,
    limits.hold: _hold,
    limits.release: _release,
    limits.clear: _key,
    limits.acquire: _acquire,
    limits.give_back: _give_back,
    limits.usage: _usage,
}
