"""A gap between starts: to the microsecond, whatever jobs cost and however the gap is changed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from paceline.limits import Concurrency, Delay, Rate
from paceline.limits.kind import Admitted, Refused, admit

from .oracle import Start, gap_opens_at
from .strategies import micros, pauses, windows

steps = st.lists(st.tuples(pauses, st.integers(1, 6)), max_size=50)


@given(windows, steps)
def test_two_starts_are_never_closer_than_the_gap(gap: int, asked: list[Start]) -> None:
    delay, now = Delay(micros(gap)), 0
    state, starts = delay.new_state(), []
    for pause, cost in asked:
        now += pause
        expected = gap_opens_at(starts, gap, now)
        assert max(delay.opens_at(state, 0, cost), now) == expected
        if admit(delay, state, 0, cost, now) == Admitted():
            delay.charge(state, cost, now)
            starts.append((now, cost))
    assert all(later - earlier >= gap for (earlier, _), (later, _) in itertools.pairwise(starts))


@given(windows, st.integers(0, 10**9))
def test_it_opens_exactly_one_gap_after_the_start(gap: int, at: int) -> None:
    delay = Delay(micros(gap))
    state = delay.new_state()
    delay.charge(state, 1, at)
    assert admit(delay, state, 0, 1, at + gap - 1) == Refused(at + gap)
    assert admit(delay, state, 0, 1, at + gap) == Admitted()


@given(windows)
def test_driven_at_each_opening_no_time_is_lost(gap: int) -> None:
    delay, now = Delay(micros(gap)), 3
    state = delay.new_state()
    for _ in range(101):
        now = max(now, delay.opens_at(state, 0, 1))
        delay.charge(state, 1, now)
    assert now - 3 == 100 * gap


@given(windows, st.lists(st.tuples(pauses, windows | st.none()), max_size=40))
def test_a_changed_gap_holds_from_the_last_start_on(gap: int, events: list[tuple[int, int | None]]) -> None:
    delay, now = Delay(micros(gap)), 0
    state, starts = delay.new_state(), []
    for pause, other in events:
        now += pause
        if other is not None:
            gap, changed = other, Delay(micros(other))
            delay, state = changed, changed.adopt(delay, state)
        assert max(delay.opens_at(state, 0, 1), now) == gap_opens_at(starts, gap, now)
        if delay.opens_at(state, 0, 1) <= now:
            delay.charge(state, 1, now)
            starts.append((now, 1))


@given(windows, steps)
def test_storing_and_reading_the_state_changes_no_decision(gap: int, asked: list[Start]) -> None:
    delay, now = Delay(micros(gap)), 0
    kept = stored = delay.new_state()
    for pause, cost in asked:
        now += pause
        stored = delay.load(list(delay.dump(stored)))
        assert delay.opens_at(stored, 0, cost) == delay.opens_at(kept, 0, cost)
        delay.charge(kept, cost, now)
        delay.charge(stored, cost, now)


@given(windows, steps, pauses)
def test_from_the_instant_it_may_be_forgotten_a_state_decides_like_a_new_one(
    gap: int, asked: list[Start], pause: int
) -> None:
    delay, now = Delay(micros(gap)), 0
    old, new = delay.new_state(), delay.new_state()
    for step, cost in asked:
        now += step
        delay.charge(old, cost, now)
    now = max(now, delay.forget_after(old))
    assert max(delay.opens_at(old, 0, 1), now) == max(delay.opens_at(new, 0, 1), now)
    for state in (old, new):
        delay.charge(state, 1, now + pause)
    assert delay.opens_at(old, 0, 1) == delay.opens_at(new, 0, 1)


def test_it_shows_as_used_until_the_gap_is_over() -> None:
    delay = Delay("10us")
    state = delay.new_state()
    assert delay.used(state, 0, 0) == 0
    delay.charge(state, 1, 5)
    assert [delay.used(state, 0, now) for now in (5, 14, 15)] == [1, 1, 0]
    assert delay.allowed == 1


def test_a_gap_that_replaces_a_rate_keeps_the_last_start() -> None:
    rate = Rate(5, per="1s")
    old = rate.new_state()
    rate.charge(old, 2, 7)
    rate.charge(old, 2, 9)
    delay = Delay("10us")
    assert delay.opens_at(delay.adopt(rate, old), 0, 1) == 19


def test_a_gap_that_replaces_what_counts_no_starts_is_open() -> None:
    concurrency = Concurrency(3)
    delay = Delay("10us")
    assert delay.opens_at(delay.adopt(concurrency, concurrency.new_state()), 3, 1) == 0
