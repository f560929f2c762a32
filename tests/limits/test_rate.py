"""A rate: never over the limit in any window, open to the microsecond, and used to the full."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.limits import Delay, EvenlySpaced, Rate
from paceline.limits.kind import Admitted, Refused, admit

from .oracle import Start, fullest_window, rate_opens_at, spent
from .strategies import counts, micros, pauses, windows

steps = st.lists(st.tuples(pauses, st.integers(1, 6)), max_size=60)
"""Time that passes, and the cost of the start that is asked for then."""


def rate_of(most: int, window: int) -> Rate:
    return Rate(most, micros(window))


@given(counts, windows, steps)
def test_every_decision_is_the_one_of_a_complete_list_of_starts(most: int, window: int, asked: list[Start]) -> None:
    rate, now = rate_of(most, window), 0
    state, starts = rate.new_state(), []
    for pause, cost in asked:
        now += pause
        cost = min(cost, most)
        expected = rate_opens_at(starts, most, window, cost, now)
        assert max(rate.opens_at(state, 0, cost), now) == expected
        if admit(rate, state, 0, cost, now) == Admitted():
            rate.charge(state, cost, now)
            starts.append((now, cost))
            assert fullest_window(starts, window) <= most


@given(counts, windows, steps)
def test_it_is_refused_one_microsecond_before_it_opens_and_admitted_when_it_does(
    most: int, window: int, asked: list[Start]
) -> None:
    rate, now = rate_of(most, window), 0
    state, starts = rate.new_state(), []
    for pause, cost in asked:
        now += pause
        rate.charge(state, cost, now)  # also beyond the limit: what happened, happened
        starts.append((now, cost))
    for cost in range(1, most + 1):
        opens_at = rate.opens_at(state, 0, cost)
        if opens_at > now:
            assert spent(starts, window, opens_at - 1) + cost > most
            assert admit(rate, state, 0, cost, opens_at - 1) == Refused(opens_at)
        at = max(opens_at, now)
        assert spent(starts, window, at) + cost <= most
        assert admit(rate, state, 0, cost, at) == Admitted()


@given(counts, windows, st.integers(1, 6), st.integers(0, 10**6))
def test_driven_at_each_opening_it_uses_all_that_the_limit_allows(
    most: int, window: int, cost: int, first: int
) -> None:
    rate, now = rate_of(most, window), first
    state, starts = rate.new_state(), []
    cost = min(cost, most)
    per_window = most // cost
    for _ in range(100 * per_window):
        now = max(now, rate.opens_at(state, 0, cost))
        rate.charge(state, cost, now)
        starts.append((now, cost))
    assert fullest_window(starts, window) <= most
    assert starts[-1][0] - first == 99 * window  # 100 windows are full: not 99 %, all of it


@settings(max_examples=25)
@given(
    st.integers(1, 3), windows, st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), min_size=90, max_size=150)
)
def test_a_long_history_is_folded_without_a_trace(most: int, window: int, asked: list[Start]) -> None:
    rate, now = rate_of(most, window), 0
    state, starts = rate.new_state(), []
    for pause, cost in asked:
        now += pause
        rate.charge(state, cost, now)
        starts.append((now, cost))
    assert len(state.ats) <= 2 * most + 33  # constant memory
    for cost in range(1, most + 1):
        assert max(rate.opens_at(state, 0, cost), now) == rate_opens_at(starts, most, window, cost, now)


changes = st.lists(
    st.tuples(pauses, st.tuples(counts, windows) | st.integers(1, 6)),
    max_size=50,
)
"""Time that passes, and then either other numbers or a start of this cost."""


@given(counts, windows, changes)
def test_changed_numbers_forget_no_start_and_let_no_window_exceed_them(
    most: int, window: int, events: list[Any]
) -> None:
    rate, now = rate_of(most, window), 0
    state, starts, changed_at = rate.new_state(), [], 0
    for pause, event in events:
        now += pause
        if isinstance(event, tuple):
            most, window = event
            changed, changed_at = rate_of(most, window), now
            state = changed.adopt(rate, state)
            rate = changed
            continue
        cost = min(event, most)
        exact = rate_opens_at(starts, most, window, cost, now)
        opens_at = max(rate.opens_at(state, 0, cost), now)
        assert opens_at >= exact  # never early, whatever was started under earlier numbers
        assert opens_at <= max(exact, changed_at + window)  # and exact again after one window at the latest
        if opens_at <= now:
            rate.charge(state, cost, now)
            starts.append((now, cost))
            assert spent(starts, window, now) <= most


@given(counts, windows, counts, windows, steps)
def test_a_maximum_that_does_not_grow_is_exact_at_once(
    most: int, window: int, later_most: int, later_window: int, asked: list[Start]
) -> None:
    rate, now = rate_of(most, window), 0
    state, starts = rate.new_state(), []
    for pause, cost in asked:
        now = max(now + pause, rate.opens_at(state, 0, min(cost, most)))
        rate.charge(state, min(cost, most), now)
        starts.append((now, min(cost, most)))
    later_most = min(most, later_most)
    changed = rate_of(later_most, later_window)
    state = changed.adopt(rate, state)
    for cost in range(1, later_most + 1):
        exact = rate_opens_at(starts, later_most, later_window, cost, now)
        assert max(changed.opens_at(state, 0, cost), now) == exact


@given(counts, windows, steps, steps)
def test_storing_and_reading_the_state_changes_no_decision(
    most: int, window: int, asked: list[Start], more: list[Start]
) -> None:
    rate, now = rate_of(most, window), 0
    kept, starts = rate.new_state(), []
    for pause, cost in asked:
        now += pause
        rate.charge(kept, cost, now)
        starts.append((now, cost))
    stored = rate.load(list(rate.dump(kept)))
    for pause, cost in more:
        now += pause
        stored = rate.load(list(rate.dump(stored)))
        for wanted in range(1, most + 1):
            expected = rate_opens_at(starts, most, window, wanted, now)
            assert max(rate.opens_at(stored, 0, wanted), now) == expected
            assert max(rate.opens_at(kept, 0, wanted), now) == expected
        rate.charge(kept, cost, now)
        rate.charge(stored, cost, now)
        starts.append((now, cost))
    assert all(isinstance(number, int) for number in rate.dump(stored))


@given(counts, windows, steps)
def test_a_look_at_the_state_leaves_it_as_it_is(most: int, window: int, asked: list[Start]) -> None:
    rate, now = rate_of(most, window), 0
    state = rate.new_state()
    for pause, cost in asked:
        now += pause
        rate.charge(state, cost, now)
    before = (list(state.ats), list(state.cums), state.total, state.base, state.lost_at)

    rate.dump(state)

    assert (state.ats, state.cums, state.total, state.base, state.lost_at) == before


@given(counts, windows, steps, steps)
def test_from_the_instant_it_may_be_forgotten_a_state_decides_like_a_new_one(
    most: int, window: int, asked: list[Start], more: list[Start]
) -> None:
    rate, now = rate_of(most, window), 0
    old = rate.new_state()
    for pause, cost in asked:
        now += pause
        rate.charge(old, cost, now)
    now = max(now, rate.forget_after(old))
    new = rate.new_state()
    for pause, cost in more:
        now += pause
        for wanted in range(1, most + 1):
            assert max(rate.opens_at(old, 0, wanted), now) == max(rate.opens_at(new, 0, wanted), now)
        rate.charge(old, cost, now)
        rate.charge(new, cost, now)


@given(counts, windows, steps, pauses)
def test_what_is_shown_as_used_is_what_the_window_holds(most: int, window: int, asked: list[Start], pause: int) -> None:
    rate, now = rate_of(most, window), 0
    state, starts = rate.new_state(), []
    for step, cost in asked:
        now = max(now + step, rate.opens_at(state, 0, min(cost, most)))
        rate.charge(state, min(cost, most), now)
        starts.append((now, min(cost, most)))
    now += pause
    assert rate.used(state, 0, now) == spent(starts, window, now) <= rate.allowed == most


@given(counts, windows, steps, st.integers(1, 30))
def test_a_clock_that_went_back_never_makes_room_early(most: int, window: int, asked: list[Start], back: int) -> None:
    rate, now = rate_of(most, window), 100
    state, starts = rate.new_state(), []
    for pause, cost in asked:
        now += pause
        rate.charge(state, cost, now - back)
        starts.append((now - back, cost))
        rate.charge(state, cost, now)
        starts.append((now, cost))
    for cost in range(1, most + 1):
        assert max(rate.opens_at(state, 0, cost), now) >= rate_opens_at(starts, most, window, cost, now)


@pytest.mark.parametrize(
    ("per", "least", "guard"),
    [
        ("1s", 5_000, 20_000),
        ("10s", 5_000, 50_000),
        ("1h", 5_000, 50_000),
        ("100ms", 5_000, 5_000),
        ("100ms", 10_000, 10_000),
        ("1ms", 5_000, 5_000),
        ("1s", 0, 0),
    ],
)
def test_a_store_chooses_a_guard_where_none_is_given(per: str, least: int, guard: int) -> None:
    rate = Rate(3, per=per)
    assert (rate.guard, rate.in_force(least).guard_us) == (None, guard)
    assert rate.in_force(least).window == rate.window + guard


def test_a_guard_that_is_given_stays(per: str = "1s") -> None:
    for guard in (0, "1ms", "1s"):
        assert Rate(3, per=per, guard=guard).in_force(5_000) == Rate(3, per=per, guard=guard)


def test_no_guard_is_a_value_of_its_own() -> None:
    assert Rate(3, per="1s") != Rate(3, per="1s", guard=0)
    assert repr(Rate(3, per="1s")) == "Rate(3, per='1s')"
    assert repr(Rate(3, per="1s", guard=0)) == "Rate(3, per='1s', guard=0)"


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3), st.booleans(), st.integers(0, 30)), max_size=60),
)
def test_what_is_taken_out_counts_no_more(most: int, script: list[tuple[int, int, bool, int]]) -> None:
    """Charges that were admitted, some of them taken out again, beside a plain list of starts."""
    rate = Rate(most, per="20us", guard=0)
    state, starts, now = rate.new_state(), list[tuple[int, int]](), 100
    for pause, cost, takes_out, which in script:
        now += pause
        if takes_out and starts:
            at, taken = starts.pop(max(len(starts) - 1 - which, 0))
            rate.take_out(state, taken, at)
        elif rate.opens_at(state, 0, cost) <= now:
            rate.charge(state, cost, now)
            starts.append((now, cost))
        spent = sum(taken for at, taken in starts if at > now - 20)
        assert rate.used(state, 0, now) == spent
        for wanted in range(1, most + 1):
            assert (rate.opens_at(state, 0, wanted) <= now) == (spent + wanted <= most)


def test_more_than_an_entry_has_is_never_taken_out_of_it() -> None:
    rate = Rate(5, per="20us", guard=0)
    state = rate.new_state()
    rate.charge(state, 2, 10)
    rate.charge(state, 2, 12)

    rate.take_out(state, 3, 12)
    rate.take_out(state, 1, 11)

    assert rate.used(state, 0, 12) == 2


def test_under_a_shorter_guard_earlier_starts_count_as_long_as_before() -> None:
    old, new = Rate(1, per="100us", guard="50us"), Rate(1, per="100us", guard="20us")
    state = old.new_state()
    old.charge(state, 1, 10)

    state = new.adopt(old, state)

    assert new.opens_at(state, 0, 1) == 160
    assert Rate(1, per="100us", guard="70us").adopt(new, state).ats == [40]


def test_a_guard_is_added_to_the_window() -> None:
    guarded = Rate(3, per="1s", guard="50ms")
    state = guarded.new_state()
    for _ in range(3):
        guarded.charge(state, 1, 10)
    assert guarded.opens_at(state, 0, 1) == 10 + 1_050_000


def test_a_cost_above_the_maximum_never_fits() -> None:
    assert Rate(3, per="1s").fits(3)
    assert not Rate(3, per="1s").fits(4)


@pytest.mark.parametrize("other", [Delay("10us"), EvenlySpaced(2, per="20us")], ids=repr)
def test_a_rate_that_replaces_a_gap_keeps_the_last_start(other: Any) -> None:
    old = other.new_state()
    other.charge(old, 1, 7)
    rate = Rate(1, per="1s")
    assert rate.opens_at(rate.adopt(other, old), 0, 1) == 7 + 1_000_000


def test_text_and_numbers_make_the_same_rate() -> None:
    assert Rate("100/min") == Rate(100, per="1m") == Rate(100, per=60)
    assert Rate("5 per 10s") == Rate(5, per=10)
