"""Even spacing: no bursts, no drift, and no fraction of a microsecond given away or taken."""

from __future__ import annotations

import itertools
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.limits import Delay, EvenlySpaced, Rate
from paceline.limits.kind import Admitted, Refused, admit

from .oracle import Spacing, Start, fullest_window
from .strategies import counts, micros, pauses, windows

steps = st.lists(st.tuples(pauses, st.integers(1, 6)), max_size=50)
later_steps = st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 4)), max_size=50)
"""Whether to start at the very instant it opens, else how much later, and at what cost."""


def spacing_of(most: int, per: int) -> EvenlySpaced:
    return EvenlySpaced(most, micros(per))


@given(counts, windows, later_steps)
def test_every_decision_is_the_one_of_exact_fractions(most: int, per: int, asked: list[tuple[bool, int, int]]) -> None:
    kind, oracle, now = spacing_of(most, per), Spacing(most, per), 0
    state, started = kind.new_state(), False
    for on_time, pause, cost in asked:
        opens_at = oracle.opens_at(now)
        assert max(kind.opens_at(state, 0, cost), now) == opens_at
        if started and opens_at > now:
            assert admit(kind, state, 0, cost, opens_at - 1) == Refused(opens_at)
        now = opens_at if on_time else opens_at + pause
        assert admit(kind, state, 0, cost, now) == Admitted()
        kind.charge(state, cost, now)
        oracle.start(now, cost)
        started = True


@given(counts, windows, steps)
def test_no_window_holds_more_than_the_maximum(most: int, per: int, asked: list[Start]) -> None:
    kind, now = spacing_of(most, per), 0
    state, starts = kind.new_state(), []
    for pause, _ in asked:
        now += pause
        if kind.opens_at(state, 0, 1) <= now:
            kind.charge(state, 1, now)
            starts.append((now, 1))
    assert fullest_window(starts, per) <= most
    gap = per // most
    assert all(later - earlier >= gap for (earlier, _), (later, _) in itertools.pairwise(starts))


def test_seven_per_minute_do_not_drift_over_ten_thousand_starts() -> None:
    kind, now = EvenlySpaced(7, per="60s"), 0
    state = kind.new_state()
    for number in range(10_000):
        now = max(now, kind.opens_at(state, 0, 1))
        assert now == ceil(number * 60_000_000 / 7)
        kind.charge(state, 1, now)


@given(counts, windows, st.integers(1, 5))
def test_driven_at_each_opening_it_uses_all_that_the_limit_allows(most: int, per: int, cost: int) -> None:
    kind, now = spacing_of(most, per), 11
    state = kind.new_state()
    for _ in range(most * 50):
        now = max(now, kind.opens_at(state, 0, cost))
        kind.charge(state, cost, now)
    assert max(now, kind.opens_at(state, 0, cost)) == 11 + 50 * per * cost


@given(counts, windows, counts, windows, st.integers(1, 3), pauses)
def test_changed_numbers_hold_from_the_last_start_on(
    most: int, per: int, later_most: int, later_per: int, cost: int, pause: int
) -> None:
    kind, changed = spacing_of(most, per), spacing_of(later_most, later_per)
    state = kind.new_state()
    kind.charge(state, cost, pause)
    adopted = changed.adopt(kind, state)
    assert changed.opens_at(adopted, 0, 1) == pause + ceil(cost * later_per / later_most)


@pytest.mark.parametrize("changed", [EvenlySpaced(1, per="1s"), Delay("1s"), Rate(1, per="1s")], ids=repr)
def test_numbers_changed_after_a_rounded_start_count_from_that_start(changed: EvenlySpaced | Delay | Rate) -> None:
    kind, now = EvenlySpaced(3, per="1s"), 0
    state = kind.new_state()
    for _ in range(2):
        now = max(now, kind.opens_at(state, 0, 1))
        kind.charge(state, 1, now)
    assert now == 333_334
    assert changed.opens_at(changed.adopt(kind, state), 0, 1) == now + 1_000_000


@given(counts, windows, later_steps)
def test_storing_and_reading_the_state_changes_no_decision(
    most: int, per: int, asked: list[tuple[bool, int, int]]
) -> None:
    kind, now = spacing_of(most, per), 0
    kept = stored = kind.new_state()
    for on_time, pause, cost in asked:
        stored = kind.load(list(kind.dump(stored)))
        assert kind.opens_at(stored, 0, 1) == kind.opens_at(kept, 0, 1)
        now = max(now, kind.opens_at(kept, 0, 1)) + (0 if on_time else pause)
        kind.charge(kept, cost, now)
        kind.charge(stored, cost, now)


@given(counts, windows, later_steps, later_steps)
def test_from_the_instant_it_may_be_forgotten_a_state_decides_like_a_new_one(
    most: int, per: int, asked: list[tuple[bool, int, int]], more: list[tuple[bool, int, int]]
) -> None:
    kind, now = spacing_of(most, per), 0
    old, new = kind.new_state(), kind.new_state()
    for on_time, pause, cost in asked:
        now = max(now, kind.opens_at(old, 0, 1)) + (0 if on_time else pause)
        kind.charge(old, cost, now)
    now = max(now, kind.forget_after(old))
    for on_time, pause, cost in more:
        assert max(kind.opens_at(old, 0, 1), now) == max(kind.opens_at(new, 0, 1), now)
        now = max(now, kind.opens_at(new, 0, 1)) + (0 if on_time else pause)
        kind.charge(old, cost, now)
        kind.charge(new, cost, now)


def test_spacing_that_replaces_a_rate_keeps_the_last_start() -> None:
    rate = Rate(5, per="1s")
    old = rate.new_state()
    rate.charge(old, 1, 9)
    kind = EvenlySpaced(2, per="20us")
    assert kind.opens_at(kind.adopt(rate, old), 0, 1) == 19
