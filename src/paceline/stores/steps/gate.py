"""Between claim and handler: a start whose handler would begin too late is decided again, as if it were claimed now."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.clock import Micros
from paceline.stores.interface import Decided, Lease, Outcome
from paceline.stores.steps.begun import held, known_keys, take_out
from paceline.stores.steps.finish import end_run
from paceline.stores.steps.lanes import Keys
from paceline.stores.steps.rows import ON_TIME, OPEN, Row
from paceline.stores.steps.state import Permit, State


def decide_again(state: State, leases: Sequence[Lease]) -> Decided:
    """Late starts, one after the other: admitted ones are open until they begin, the others go back to their places."""
    now = state.now()
    refused: list[str] = []
    lost: list[str] = []
    for lease in leases:
        row = held(state, lease)
        if not isinstance(row, Row):
            lost.append(lease.id)
        elif row.gate == ON_TIME and not open_again(state, row, now):
            refused.append(row.job.id)
            _hand_back(state, row, now)
    return Decided(refused=refused, lost=lost)


def open_again(state: State, holder: Row | Permit, now: Micros) -> bool:
    """Take a start's own charge out and decide under present numbers and holds; only windows are asked again."""
    keys = known_keys(state, holder)
    take_out(holder, keys)
    if not all(meter.admits_late(cost, now) for meter, cost in keys):
        return False
    for meter, cost in keys:
        meter.open_up(cost)
    holder.gate = OPEN
    return True


def _hand_back(state: State, row: Row, now: Micros) -> None:
    keys = known_keys(state, row)
    state.queue(row.job.queue).drop_start(row)
    end_run(state, row, Outcome.RELEASED, now)
    look_again(state, keys)


def look_again(state: State, keys: Keys) -> None:
    """What a start gave back is there for others."""
    for meter, _ in keys:
        for lane in meter.lanes:
            lane.look_again()
    state.sleepers.wake_all()
