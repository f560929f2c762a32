"""Bugs to plant: each takes one guarantee away. `PACELINE_MUTANT=<name>` plants one when pytest loads this plugin."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from paceline.clock import NEVER
from paceline.limits import turns
from paceline.limits.admission import Meter
from paceline.limits.delay import RemembersLastStart
from paceline.limits.rate import Rate, Window
from paceline.limits.spacing import EvenlySpaced
from paceline.stores.interface import Outcome
from paceline.stores.memory import store
from paceline.stores.steps import claim, filing, finish, insert, limits, queue_state
from paceline.stores.steps.lanes import LaneClass
from paceline.stores.steps.state import State

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[plant.__name__] = plant
    return plant


def wrapped(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


@mutant
def fixed_window_instead_of_sliding() -> None:
    def opens_at(self: Rate, state: Window, in_flight: int, cost: int) -> int:
        if not state.ats:
            return 0
        border = state.ats[-1] // self.window * self.window
        spent = sum(1 for at in state.ats if at >= border)
        return 0 if spent + cost <= self.max else border + self.window

    Rate.opens_at = opens_at  # type: ignore[method-assign]


@mutant
def window_one_microsecond_short() -> None:
    wrapped(Rate, "opens_at", lambda real: lambda self, *ask: max(real(self, *ask) - 1, 0))


@mutant
def window_one_microsecond_long() -> None:
    wrapped(Rate, "opens_at", lambda real: lambda self, *ask: (at := real(self, *ask)) and at + 1)


@mutant
def starts_forgotten_when_numbers_change() -> None:
    Rate.adopt = lambda self, old, state: Window()  # type: ignore[method-assign]


@mutant
def last_start_forgotten_when_numbers_change() -> None:
    RemembersLastStart.adopt = lambda self, old, state: self.new_state()  # type: ignore[method-assign]


@mutant
def spacing_that_drifts() -> None:
    def charge(self: EvenlySpaced, state: Any, cost: int, now: int) -> None:
        state.at, state.carry, state.cost = now, 0, cost

    EvenlySpaced.charge = charge  # type: ignore[method-assign]


@mutant
def start_not_charged() -> None:
    Meter.count = lambda self, cost, now: None  # type: ignore[method-assign]


@mutant
def start_given_back_at_the_end() -> None:
    def free(real: Any) -> Any:
        def freed(self: State, holder: str, keys: Any) -> None:
            for meter, _ in keys:
                meter.clear()
            real(self, holder, keys)

        return freed

    wrapped(State, "free", free)


@mutant
def charged_one_by_one() -> None:
    def noted(keys: Any, until: int) -> None:
        for meter, cost in keys:
            if meter.opens_at(cost) == 0:
                meter.count(cost, until)

    limits._note_refusal = noted


@mutant
def slot_that_leaks_when_a_lease_ends() -> None:
    def free(self: State, holder: str, keys: Any) -> None:
        self.sleepers.wake_all()

    State.free = free  # type: ignore[method-assign]


@mutant
def hold_that_shrinks() -> None:
    def hold(self: Meter, until: int, now: int, reason: str | None = None) -> None:
        self.hold_until, self.held_at, self.hold_reason = until, now, reason

    Meter.hold = hold  # type: ignore[method-assign]


@mutant
def hold_wiped_by_room_in_the_window() -> None:
    def opens_at(self: Meter, cost: int) -> int:
        if len(self.leases) >= self.slots:
            return NEVER
        times = [part.opens_at(state, 0, cost) for part, state in self.timed]
        return max(times) if times else self.hold_until

    Meter.opens_at = opens_at  # type: ignore[method-assign]


@mutant
def lost_claim_is_started_again() -> None:
    claim._replay = lambda state, ask, now: None


@mutant
def attempt_used_by_a_refusal_from_outside() -> None:
    def going_back(real: Any) -> Any:
        def back(state: Any, row: Any, outcome: Outcome, now: int, due_at: int) -> None:
            real(state, row, outcome, now, due_at)
            if outcome is Outcome.RETURNED:
                row.attempts_made += 1

        return back

    finish._go_back = going_back(finish._go_back)


@mutant
def crash_counts_as_an_attempt() -> None:
    def going_back(real: Any) -> Any:
        def back(state: Any, row: Any, outcome: Outcome, now: int, due_at: int) -> None:
            real(state, row, outcome, now, due_at)
            if outcome is Outcome.CRASHED:
                row.attempts_made += 1

        return back

    finish._go_back = going_back(finish._go_back)


@mutant
def group_size_counted_before_the_bulk() -> None:
    wrapped(insert, "_count_group", lambda real: lambda line, job, sizes: real(line, job, {}))


@mutant
def group_joins_at_the_current_turn() -> None:
    filing.joins_at = lambda own, virtual_time: max(own, virtual_time)
    assert turns.joins_at is not filing.joins_at


@mutant
def time_spent_blocked_is_credit() -> None:
    queue_state.after_start = lambda own, virtual_time, cost=1, weight=1: own + cost * turns.ONE // weight


@mutant
def closed_class_hides_the_others() -> None:
    def choosing(real: Any) -> Any:
        def chosen(self: Any, choosing: Any) -> Any:
            for cls in self.visible(choosing):
                if cls.first_ready() is not None and cls.opens_at() > choosing.now:
                    return None
            return real(self, choosing)

        return chosen

    wrapped(queue_state.QueueState, "choose", choosing)


@mutant
def big_job_that_never_reserves() -> None:
    Meter.reserve = lambda self, job_id, cost, now: None  # type: ignore[method-assign]
    LaneClass.opens_at = lambda self: max((m.opens_at(1) for m in self.shared), default=0)  # type: ignore[method-assign]


@mutant
def lease_taken_back_too_early() -> None:
    wrapped(claim, "take_back", lambda real: lambda state, now, most, *more: real(state, now + 1, most, *more))


@mutant
def clock_that_goes_back() -> None:
    State.now = lambda self: self._clock_now()  # type: ignore[method-assign]


@mutant
def claim_without_a_lock() -> None:
    class NoLock:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    def made(real: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            real(self, *args, **options)
            self._lock = NoLock()

        return init

    wrapped(store.MemoryStore, "__init__", made)
    # Without the lock another thread may come between the choice and the start: make that likely.
    import time

    def starting(real: Any) -> Any:
        def started(*args: Any) -> None:
            time.sleep(0.0005)
            real(*args)

        return started

    claim._start = starting(claim._start)


if os.environ.get("PACELINE_MUTANT"):
    MUTANTS[os.environ["PACELINE_MUTANT"]]()
