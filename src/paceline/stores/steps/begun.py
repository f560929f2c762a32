"""Step 3, begun: from when on a start counts whose handler began later than its stamp allows."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import Micros
from paceline.stores.interface import Begun, Lease
from paceline.stores.steps.lanes import Keys
from paceline.stores.steps.rows import BEGUN, OPEN, Row
from paceline.stores.steps.state import Permit, State


def begun(state: State, said: Sequence[Begun]) -> list[str]:
    """Handlers have begun: their starts count from there; returns the ids whose lease is lost."""
    now = state.now()
    lost: list[str] = []
    for each in said:
        holder = held(state, each)
        if holder is None:
            lost.append(each.id)
        else:
            begin(state, holder, min(max(now - each.ago, holder.started_at or 0), now))
    return lost


def held(state: State, lease: Lease | Begun) -> Row | Permit | None:
    """The job or permit whose lease this is; None when it is lost."""
    holder = state.rows.get(lease.id) or state.permits.get(lease.id)
    if holder is None or not holder.active or holder.fence != lease.fence:
        return None
    return holder


def begin(state: State, holder: Row | Permit, at: Micros) -> None:
    """Count a start from this instant on; said again, it changes nothing."""
    if holder.gate == BEGUN:
        return
    keys = known_keys(state, holder)
    take_out(holder, keys)
    for meter, cost in keys:
        meter.begin(cost, at)
    if isinstance(holder, Row):
        state.queue(holder.job.queue).move_start(holder, at)
    holder.started_at = at
    holder.gate = BEGUN
    state.unpark(keys)


def take_out(holder: Row | Permit, keys: Keys) -> None:
    """A start counts no more, neither where it was stamped nor as an open one."""
    for meter, cost in keys:
        if holder.gate == OPEN:
            meter.open_up(-cost)
        else:
            meter.take_out(cost, holder.started_at or 0)


def abandon(state: State, holder: Row | Permit) -> None:
    """A lease ends and nobody said that its open start began: it counts no more."""
    if holder.gate == OPEN:
        take_out(holder, known_keys(state, holder))


def known_keys(state: State, holder: Row | Permit) -> Keys:
    """What a start was charged to, but for limits that were dropped since."""
    return [(meter, cost) for meter, cost in holder.keys if state.registry.knows(meter)]
