"""What is said about limits: declare, override, hold, release; and starts that are no jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from paceline.clock import NEVER, Micros
from paceline.errors import ConfigError, NeverFits
from paceline.limits import Limit
from paceline.limits.admission import charge
from paceline.limits.kind import Part
from paceline.stores.interface import Changed, Failed, Grant, Hold, Override, Target, Usage
from paceline.stores.steps.begun import begin
from paceline.stores.steps.claim import end_permit, take_back
from paceline.stores.steps.finish import drop_reservations, hold_key
from paceline.stores.steps.gate import look_again, open_again
from paceline.stores.steps.lanes import Keys
from paceline.stores.steps.registry import LaneMeter, reconciled
from paceline.stores.steps.rows import ON_TIME, OPEN
from paceline.stores.steps.state import Permit, State


def set_limits(state: State, limits: Sequence[Limit]) -> list[Changed]:
    """Declare limits for everybody, at once."""
    changed, widened = state.registry.declare(limits)
    if widened:
        state.reclassify()
    for change in changed:
        state.limit_opened(change.new.name)
    return changed


def are_declared(state: State, limits: Sequence[Limit]) -> bool:
    """True when declaring these would change nothing."""
    known = state.registry.limits
    return all(known.get(limit.name) == reconciled(limit, known.get(limit.name)) for limit in limits)


def drop_limit(state: State, name: str) -> bool:
    """Forget a limit: the jobs that met it go on without it."""
    dropped = state.registry.drop(name)
    if dropped:
        state.reclassify()
    return dropped


def declared(state: State) -> list[Limit]:
    """All limits."""
    return list(state.registry.limits.values())


def overrides(state: State) -> list[Override]:
    """The operator's numbers that hold now."""
    state.now()
    return list(state.registry.overrides.values())


def override(state: State, wanted: Override, for_: Micros | None) -> None:
    """Set an operator's numbers; they win until lifted or over."""
    if wanted.group is not None and state.registry.require(wanted.limit).by != "group":
        raise ConfigError(
            f"limit {wanted.limit!r} with group={wanted.group!r} is wrong: the limit is not per group",
            option="group",
            value=wanted.group,
        )
    expires_at = wanted.expires_at if for_ is None else state.now() + for_
    state.registry.override(msgspec.structs.replace(wanted, expires_at=expires_at))
    state.limit_opened(wanted.limit)


def lift(state: State, name: str, group: str | None) -> None:
    """Take an operator's numbers back."""
    state.registry.require(name)
    if state.registry.lift(name, group):
        state.limit_opened(name)


def hold(state: State, holds: Sequence[Hold]) -> None:
    """Let nobody start under these keys for a while."""
    now = state.now()
    for wanted in holds:
        if wanted.create is None:
            state.registry.require(wanted.limit)
    for wanted in holds:
        hold_key(state, wanted, now)


def release(state: State, name: str, group: str | None) -> None:
    """Lift the hold of a key, or of all keys of a limit."""
    state.registry.require(name)
    if group is None:
        state.registry.release_all(name)
    for meter in state.registry.meters_of(name):
        if group is None or meter.key[1] == group:
            meter.release()
    state.limit_opened(name, group)


def clear(state: State, name: str, group: str | None) -> None:
    """Forget starts and holds of a key; live leases stay."""
    meter = state.registry.require_key(name, group)
    state.registry.forget_starts(meter)
    meter.release()
    state.limit_opened(name, group)


def usage(state: State, name: str, group: str | None) -> Usage:
    """How full a key is; a per-group limit without a group is asked about a group nobody has used."""
    now = state.now()
    limit = state.registry.require(name)
    if limit.by == "group" and group is None:
        waiting = _waiting_under(state, name, None, by_group=True)
        return _usage_of(state.registry.new_meter((name, None)), 1, now, waiting)
    meter = state.registry.require_key(name, group)
    return usage_of(state, meter, 1, now)


def usage_of(state: State, meter: LaneMeter, cost: int, now: Micros) -> Usage:
    """How full a key is, and when it opens for a start of this cost."""
    name, group = meter.key
    waiting = _waiting_under(state, name, group, by_group=group is not None)
    with without_dead_leases(state, [meter], now):
        return _usage_of(meter, cost, now, waiting)


@contextmanager
def without_dead_leases(state: State, meters: Sequence[LaneMeter], now: Micros) -> Iterator[None]:
    """A lease that is over counts until a claim takes it back, but nobody who asks has to wait for it."""
    over = [(meter, holder) for meter in meters if meter.leases for holder in state.over_under(meter, now)]
    for meter, holder in over:
        meter.leases.discard(holder)
    try:
        yield
    finally:
        for meter, holder in over:
            meter.leases.add(holder)


def _waiting_under(state: State, name: str, group: str | None, by_group: bool) -> int:
    """How many jobs wait under a key, or under all keys of a limit; one per group counts no jobs without a group."""
    waiting = 0
    for line in state.all_queues():
        for cls in line.classes.values():
            if any(limit.name == name for limit in cls.limits):
                lane = cls.lanes.get(group) if by_group else None
                alone = lane.waiting if lane is not None else 0
                waiting += alone if group is not None else cls.waiting - alone
    return waiting


def _usage_of(meter: LaneMeter, cost: int, now: Micros, waiting: int) -> Usage:
    used, allowed = meter.used_and_allowed(now)
    return Usage(
        limit=meter.key[0],
        group=meter.key[1],
        kind=meter.kind,
        used=used,
        allowed=allowed,
        hold_until=meter.hold_until if meter.hold_until > now else 0,
        hold_reason=meter.hold_reason,
        opens_at=meter.opens_at(cost),
        waiting=waiting,
        now=now,
        reserved_by=meter.reserved_by,
        cost=cost,
        open=meter.open,
    )


def acquire(
    state: State,
    targets: Sequence[Target],
    permit: str,
    lease: Micros,
    force: bool,
    waits: bool,
    late: Micros | None = None,
) -> Grant:
    """Start something that is no job: all keys are charged, or none."""
    now = state.now()
    if late is not None:
        return _acquire_late(state, targets, permit, now, lease, late)
    if not state.lease_may_be_over(now):
        return _acquire(state, targets, permit, now, lease, force, waits)
    failed: list[Failed] = []
    take_back(state, now, 64, failed)
    grant = _acquire(state, targets, permit, now, lease, force, waits)
    return msgspec.structs.replace(grant, failed=failed) if failed else grant


def _acquire(
    state: State, targets: Sequence[Target], permit: str, now: Micros, lease: Micros, force: bool, waits: bool
) -> Grant:
    if len(targets) == 1 and targets[0].cost == 1 and not force and not waits:
        target = targets[0]
        meter = state.registry.known((target.limit, target.group))
        # Open starts leave their windows at no known time: then the end of a lease is what to wait for.
        if meter is not None and meter.lone is not None and meter.reserved_by is None and not meter.open:
            return _acquire_one(meter, meter.lone, now)
    return _acquire_all(state, targets, permit, now, lease, force, waits)


def _acquire_all(
    state: State, targets: Sequence[Target], permit: str, now: Micros, lease: Micros, force: bool, waits: bool
) -> Grant:
    keys: Keys = []
    until = 0
    leased = False
    for target in targets:
        cost = target.cost
        meter = state.registry.known((target.limit, target.group))
        if meter is None or cost > 1:
            meter = _fitting(state, target)
        opens = meter.opens_at(cost)
        if opens > until:
            until = opens
        if meter.reserved_by is not None and meter.reserved_by != permit and now < meter.reserved_deadline:
            # When it could start by now, the room is kept until it does, or until its time to do so is over.
            until = max(until, meter.reserved_until if meter.reserved_until > now else meter.reserved_deadline)
        leased |= meter.counts_leases
        keys.append((meter, cost))
    if until > now and not force:
        _note_refusal(keys, until)
        if waits:
            _reserve(state, keys, permit, now)
        return Grant(False, now, until if until < NEVER else state.next_lease_end())
    if waits and state.registry.reserved:
        drop_reservations(state, permit)
    if not leased:
        # Nothing is held, so there is nothing to give back or to renew.
        for meter, cost in keys:
            meter.count(cost, now)
        return Grant(True, now, guard=_guard(keys))
    held = state.permits.get(permit)
    if held is not None:
        # Asked for once more under the same name: one name holds one permit.
        end_permit(state, held)
    charge(keys, permit, now)
    holder = state.permits[permit] = Permit(permit, keys, now, now + lease)
    state.lease([(holder, 0)], now + lease)
    return Grant(True, now, 0, True, guard=_guard(keys))


def _guard(keys: Keys) -> Micros:
    return min([meter.guard for meter, _ in keys], default=NEVER)


def _acquire_late(
    state: State, targets: Sequence[Target], permit: str, now: Micros, lease: Micros, late: Micros
) -> Grant:
    """A grant came too late to begin: decide again; only windows are asked, all else was decided then."""
    registry = state.registry
    met = [target for target in targets if target.limit in registry.limits]
    keys: Keys = [(registry.meter(target.limit, target.group), target.cost) for target in met]
    held = state.permits.get(permit)
    if held is None:
        held = Permit(permit, keys, late, now + lease)
        for meter, _ in keys:
            meter.leases.add(permit)
    state.permits[permit] = held
    if held.gate == ON_TIME and not open_again(state, held, now):
        end_permit(state, held)
        look_again(state, keys)
        until = max([meter.opens_at(cost) for meter, cost in keys], default=now)
        return Grant(False, now, until if until < NEVER else state.next_lease_end())
    held.lease_until = now + lease
    state.lease([(held, 0)], now + lease)
    return Grant(True, now, 0, True)


def _acquire_one(meter: LaneMeter, lone: tuple[Part, Any], now: Micros) -> Grant:
    """The common case by a short way: one key of one kind, cost 1, nothing held."""
    until = meter.closed_until
    if now < until:
        return Grant(False, now, until)
    part, counted = lone
    until = max(part.opens_at(counted, 0, 1 + meter.open), meter.hold_until)
    if until > now:
        meter.closed_until = until
        return Grant(False, now, until)
    part.charge(counted, 1, now)
    return Grant(True, now, guard=meter.guard)


def _note_refusal(keys: Keys, until: Micros) -> None:
    """Remember that somebody waits for a slot."""
    if until >= NEVER:
        for meter, _ in keys:
            meter.awaited = True


def _reserve(state: State, keys: Keys, permit: str, now: Micros) -> None:
    """A waiter of a big cost that only windows refuse keeps the room free, or smaller ones would always be first."""
    refusing = [(meter, cost) for meter, cost in keys if meter.opens_at(cost) > now]
    free = all(meter.reserved_by in (None, permit) for meter, _ in refusing)
    if free and all(cost > 1 and meter.lacks_only_time(cost, now) for meter, cost in refusing):
        for meter, cost in refusing:
            if meter.reserved_by is None:
                meter.reserve(permit, cost, now)
                state.registry.reserved[meter] = None
                state.waiting_permits.add(permit)


def _fitting(state: State, target: Target) -> LaneMeter:
    """The meter of a target; a cost that never fits is refused here."""
    meter = state.registry.require_key(target.limit, target.group)
    if not meter.fits(target.cost):
        raise NeverFits(target.limit, target.cost, meter.most())
    return meter


def give_back(state: State, permits: Sequence[str]) -> None:
    """End permits: their slots are free."""
    for permit_id in permits:
        drop_reservations(state, permit_id)
        permit = state.permits.get(permit_id)
        if permit is not None:
            for meter, _ in permit.keys:
                if meter.refusals:
                    meter.succeeded(permit.started_at)
            if permit.gate == OPEN:
                begin(state, permit, state.now())
            end_permit(state, permit)
