"""How long a limit is held after a refusal without a time: twice as long each time, up to a maximum, with jitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.limits import Backoff

from .strategies import NAMES

SECOND = 1_000_000
jitters = st.floats(0, 1, exclude_max=True)


def test_the_defaults_are_one_second_doubled_up_to_ten_minutes() -> None:
    holds = [Backoff().hold_for(refusals, 0.0) // SECOND for refusals in range(1, 13)]
    assert holds == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


@given(st.integers(1, 10**9), st.floats(1.01, 10), st.integers(1, 10**12), st.integers(1, 200), jitters)
def test_a_hold_is_between_one_and_two_delays_and_never_above_twice_the_maximum(
    initial: int, multiplier: float, more: int, refusals: int, jitter: float
) -> None:
    backoff = Backoff(f"{initial}us", multiplier, f"{initial + more}us")
    shortest = backoff.hold_for(refusals, 0.0)
    assert initial <= shortest <= initial + more
    assert shortest <= backoff.hold_for(refusals, jitter) < 2 * shortest or shortest == backoff.hold_for(
        refusals, jitter
    )
    assert backoff.hold_for(refusals + 1, 0.0) >= shortest


@pytest.mark.parametrize("refusals", [1_000, 10**5])
def test_a_service_that_never_recovers_does_not_overflow(refusals: int) -> None:
    assert Backoff().hold_for(refusals, 0.999) < 20 * 60 * SECOND


def test_what_is_printed_can_be_typed_back_in() -> None:
    backoff = Backoff("250ms", 1.5, "1h")
    assert repr(backoff) == "Backoff(initial='250ms', multiplier=1.5, maximum='1h')"
    assert eval(repr(backoff), dict(NAMES)) == backoff
    assert hash(eval(repr(backoff), dict(NAMES))) == hash(backoff)
    assert Backoff() == Backoff(1, 2, 600) != backoff
