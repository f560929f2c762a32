"""All of several kinds: each must agree, the latest next time wins, and the order of writing changes nothing."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited
from paceline.limits.admission import Meter

from .oracle import spent
from .strategies import counts, kinds, micros, parts, pauses, windows

asked = st.lists(st.tuples(pauses, st.booleans()), max_size=40)
"""Time that passes, and whether something finishes before the next start is asked for."""


@given(st.lists(parts, max_size=4), asked)
def test_it_opens_when_the_last_of_its_parts_does(several: list[Kind], events: list[tuple[int, bool]]) -> None:
    whole, now = Meter(("whole", None), AllOf(*several)), 0
    alone = [Meter(("part", None), part) for part in several]
    for number, (pause, finished) in enumerate(events):
        now += pause
        if finished and whole.leases:
            first = min(whole.leases)
            for meter in (whole, *alone):
                meter.leases.discard(first)
        assert whole.opens_at(1) == max([0, *(meter.opens_at(1) for meter in alone)])
        if whole.opens_at(1) <= now:
            for meter in (whole, *alone):
                meter.charge(f"{number:04}", 1, now)


@given(st.lists(parts, max_size=4), st.randoms(use_true_random=False), asked)
def test_the_order_of_its_parts_changes_no_decision(
    several: list[Kind], shuffler: random.Random, events: list[tuple[int, bool]]
) -> None:
    shuffled = list(several)
    shuffler.shuffle(shuffled)
    meters, now = [Meter(("limit", None), AllOf(*order)) for order in (several, shuffled)], 0
    for number, (pause, _) in enumerate(events):
        now += pause
        assert meters[0].opens_at(1) == meters[1].opens_at(1)
        if meters[0].opens_at(1) <= now:
            for meter in meters:
                meter.charge(str(number), 1, now)


@given(counts, windows, counts, windows, st.lists(pauses, max_size=60))
def test_two_rates_hold_together(
    most: int, window: int, other_most: int, other_window: int, pauses_: list[int]
) -> None:
    meter, now = Meter(("limit", None), Rate(most, micros(window)) & Rate(other_most, micros(other_window))), 0
    starts: list[tuple[int, int]] = []
    for number, pause in enumerate(pauses_):
        now += pause
        fits = spent(starts, window, now) < most and spent(starts, other_window, now) < other_most
        assert (meter.opens_at(1) <= now) == fits
        if fits:
            meter.charge(str(number), 1, now)
            starts.append((now, 1))


@given(kinds, st.lists(st.tuples(pauses, st.integers(1, 3)), max_size=40))
def test_a_start_never_opens_a_limit_earlier_not_even_one_that_was_forced(
    kind: Kind, starts: list[tuple[int, int]]
) -> None:
    meter, now = Meter(("limit", None), kind), 0
    for number, (pause, cost) in enumerate(starts):
        now += pause
        before = meter.opens_at(1)
        meter.charge(str(number), cost, now)
        assert meter.opens_at(1) >= before


@given(kinds, kinds, kinds)
def test_joining_is_associative_and_flat(a: Kind, b: Kind, c: Kind) -> None:
    assert ((a & b) & c) == (a & (b & c))
    assert not any(isinstance(kind, AllOf) for kind in (a & b & c).kinds)


def test_nothing_and_all_of_nothing_limit_nothing() -> None:
    for kind in (Unlimited(), AllOf(), Unlimited() & Unlimited()):
        meter = Meter(("limit", None), kind)
        meter.charge("job", 1_000, 5)
        assert meter.opens_at(1_000) == 0
        assert meter.fits(10**9)


def test_the_fullest_part_is_the_one_shown() -> None:
    meter = Meter(("limit", None), Rate(10, per="1s") & Concurrency(2) & Delay("1s") & EvenlySpaced(1, per="1us"))
    assert meter.used_and_allowed(0) == (0, 10)
    meter.charge("one", 3, 0)
    assert meter.used_and_allowed(0) == (1, 1)  # the gap
    assert meter.used_and_allowed(999_999) == (1, 1)
    meter.charge("two", 3, 1_000_000)
    assert meter.used_and_allowed(1_000_000) == (2, 2)  # both slots; ties go to the first part
    assert Meter(("limit", None), Unlimited()).used_and_allowed(0) == (0, None)
