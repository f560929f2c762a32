"""One key and the rule of the claim: all keys of a job are checked, then all are charged or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.clock import NEVER
from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited
from paceline.limits.admission import Meter, charge, opens_at

from .oracle import rate_opens_at, spent
from .strategies import counts, kinds, micros, parts, pauses, windows


def meter_of(kind: Kind) -> Meter:
    return Meter(("limit", None), kind)


def picture(meter: Meter) -> Any:
    """Everything a meter knows, as a value."""
    states = [part.dump(state) for part, state in meter.cells]
    return states, set(meter.leases), meter.hold_until, meter.refusals, meter.reserved_by


# all or nothing


@given(st.lists(st.tuples(kinds, st.integers(1, 3)), min_size=1, max_size=3), st.lists(pauses, max_size=30))
def test_a_start_is_charged_to_all_keys_or_to_none(limits: list[tuple[Kind, int]], pauses_: list[int]) -> None:
    meters, now = [(meter_of(kind), cost) for kind, cost in limits], 0
    keys = [(meter, min(cost, meter.most())) for meter, cost in meters]
    for number, pause in enumerate(pauses_):
        now += pause
        before = [picture(meter) for meter, _ in keys]
        all_admit = all(meter.opens_at(cost) <= now for meter, cost in keys)
        assert (opens_at(keys) <= now) == all_admit
        assert [picture(meter) for meter, _ in keys] == before  # asking changes nothing
        if all_admit:
            charge(keys, f"job {number}", now)
            assert all(f"job {number}" in meter.leases for meter, _ in keys)
            for (meter, cost), (states, *_) in zip(keys, before, strict=True):
                for (part, state), was in zip(meter.cells, states, strict=True):
                    counted = part.dump(state)
                    if isinstance(part, Rate):
                        assert counted[0] == was[0] + cost
                    elif not isinstance(part, Concurrency):
                        assert counted[0] >= now - 1 > was[0] - 2


@given(counts, windows, counts, windows, st.lists(st.tuples(pauses, st.integers(1, 3)), max_size=40))
def test_a_job_that_meets_two_limits_breaks_neither(
    most: int, window: int, other_most: int, other_window: int, asked: list[tuple[int, int]]
) -> None:
    limits = [(most, window), (other_most, other_window)]
    meters, now = [meter_of(Rate(count, micros(per))) for count, per in limits], 0
    starts: list[tuple[int, int]] = []
    for number, (pause, cost) in enumerate(asked):
        now += pause
        cost = min(cost, most, other_most)
        keys = [(meter, cost) for meter in meters]
        assert max(opens_at(keys), now) == max(rate_opens_at(starts, *limit, cost, now) for limit in limits)
        if opens_at(keys) <= now:
            charge(keys, str(number), now)
            starts.append((now, cost))
        assert all(spent(starts, per, now) <= count for count, per in limits)


def test_a_job_without_limits_starts_at_once() -> None:
    assert opens_at([]) == 0


# leases


@given(st.lists(st.tuples(st.sampled_from(["charge", "free"]), st.sampled_from("abc")), max_size=40))
def test_leases_are_a_set_that_neither_leaks_nor_is_freed_twice(events: list[tuple[str, str]]) -> None:
    meter, live = meter_of(Concurrency(2)), set()
    for event, holder in events:
        if event == "charge":
            meter.charge(holder, 1, 0)
            live.add(holder)
        else:
            meter.leases.discard(holder)
            live.discard(holder)
        assert meter.opens_at(1) == (0 if len(live) < 2 else NEVER)


# holds

holds = st.lists(
    st.tuples(
        pauses,
        st.one_of(
            st.tuples(st.just("hold"), st.integers(0, 100)),
            st.tuples(st.just("refuse"), st.floats(0, 0.99)),
            st.tuples(st.just("charge"), st.integers(1, 3)),
            st.tuples(st.just("succeeded"), st.integers(0, 60)),
            st.tuples(st.just("change"), counts),
        ),
    ),
    max_size=40,
)


@given(holds)
def test_a_hold_only_grows_until_it_is_released(events: list[tuple[int, tuple[str, Any]]]) -> None:
    meter, now, longest = meter_of(Rate(3, per="20us")), 0, 0
    backoff = Backoff(initial="1us", multiplier=2, maximum="50us")
    for number, (pause, (event, value)) in enumerate(events):
        now += pause
        if event == "hold":
            meter.hold(value, now, "said so")
        elif event == "refuse":
            meter.refuse(backoff, value, now)
            assert meter.hold_until > now
        elif event == "charge":
            meter.charge(str(number), value, now)
        elif event == "succeeded":
            meter.succeeded(now - value)
        else:
            meter.change(Rate(value, per="20us"))
        longest = max(longest, meter.hold_until, value if event == "hold" else 0)
        assert meter.hold_until == longest <= meter.opens_at(1)
    meter.release()
    assert meter.hold_until == 0 and meter.refusals == 0


def test_room_does_not_lift_a_hold_and_a_hold_does_not_make_room() -> None:
    meter = meter_of(Rate(1, per="10us"))
    meter.hold(100, now=0)
    assert meter.opens_at(1) == 100
    meter.charge("forced", 1, 95)
    assert meter.opens_at(1) == 105
    meter.release()
    assert meter.opens_at(1) == 105


def test_each_refusal_in_a_row_holds_longer_and_a_later_success_starts_over() -> None:
    meter = meter_of(Unlimited())
    backoff = Backoff(initial="1s", multiplier=2, maximum="10s")
    for refused_at, expected in ((0, 1_000_000), (1_000_000, 3_000_000), (3_000_000, 7_000_000)):
        meter.refuse(backoff, 0.0, refused_at)
        assert meter.hold_until == expected
    meter.succeeded(started_at=3_000_000)  # started before the last refusal: says nothing
    meter.refuse(backoff, 0.0, 7_000_000)
    assert meter.hold_until == 15_000_000
    meter.succeeded(started_at=15_000_000)
    meter.refuse(backoff, 0.5, 20_000_000)
    assert meter.hold_until == 21_500_000


def test_clearing_forgets_starts_and_holds_but_no_live_lease() -> None:
    meter = meter_of(Rate(1, per="1h") & Concurrency(1))
    meter.charge("job", 1, 0)
    meter.hold(10**12, now=0)
    meter.clear()
    assert meter.opens_at(1) == NEVER
    meter.leases.clear()
    assert meter.opens_at(1) == 0


# changed numbers


@given(st.lists(st.tuples(pauses, kinds | st.integers(1, 3)), max_size=40))
def test_no_rate_forgets_what_an_earlier_rate_of_its_key_counted(events: list[tuple[int, Any]]) -> None:
    meter, now = meter_of(Rate(2, per="10us")), 0
    starts: list[tuple[int, int]] = []
    for number, (pause, event) in enumerate(events):
        now += pause
        if not isinstance(event, int):
            if not any(isinstance(part, Rate) for part in event.parts()):
                event = event & Rate(3, per="15us")
            meter.change(event)
            continue
        cost = min([event, *(part.max for part in meter.parts if isinstance(part, Rate))])
        if meter.opens_at(cost) <= now:
            meter.charge(str(number), cost, now)
            starts.append((now, cost))
            for part in meter.parts:
                if isinstance(part, Rate):
                    assert spent(starts, part.window, now) <= part.max
        meter.leases.clear()


@given(kinds, st.lists(pauses, max_size=20))
def test_the_same_numbers_declared_again_change_nothing(kind: Kind, pauses_: list[int]) -> None:
    meter, now = meter_of(kind), 0
    for number, pause in enumerate(pauses_):
        now += pause
        if meter.opens_at(1) <= now:
            meter.charge(str(number), 1, now)
        before = picture(meter)
        meter.change(eval(repr(kind), {"__builtins__": {}, **{k.__name__: k for k in KINDS}}))
        assert picture(meter) == before


KINDS = (AllOf, Concurrency, Delay, EvenlySpaced, Rate, Unlimited)

COUNTS_STARTS = [Rate(3, per="50us"), Delay("20us"), EvenlySpaced(1, per="20us")]


@pytest.mark.parametrize("new", [Rate(1, per="90us"), Delay("90us"), EvenlySpaced(1, per="90us")], ids=repr)
@pytest.mark.parametrize("old", COUNTS_STARTS, ids=repr)
def test_a_part_that_counts_starts_knows_the_last_one_from_any_other_that_did(old: Any, new: Any) -> None:
    meter = meter_of(old & Concurrency(5))
    meter.charge("job", 1, 7)
    meter.change(new)
    assert meter.opens_at(1) == 97


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Rate(3, per="50us"), Delay("90us")),
        (Delay("20us"), Delay("90us")),
        (Delay("20us"), Rate(1, per="90us")),
        (Delay("20us"), EvenlySpaced(1, per="90us")),
        (EvenlySpaced(1, per="20us"), Delay("90us")),
    ],
    ids=repr,
)
def test_also_when_another_part_stands_before_it(old: Any, new: Any) -> None:
    meter = meter_of(Concurrency(5) & old)
    meter.charge("job", 1, 7)
    meter.change(new)
    assert meter.opens_at(1) == 97


# big jobs


@given(counts, windows, st.lists(st.tuples(pauses, st.integers(1, 3)), max_size=20), st.integers(1, 6), pauses)
def test_a_job_lacks_only_room_when_a_small_one_would_start_in_its_place(
    most: int, window: int, asked: list[tuple[int, int]], cost: int, pause: int
) -> None:
    meter, now = meter_of(Rate(most, micros(window))), 0
    starts: list[tuple[int, int]] = []
    for number, (step, spent_) in enumerate(asked):
        now += step
        meter.charge(str(number), spent_, now)
        starts.append((now, spent_))
    now += pause
    cost = min(cost, most)
    room = most - spent(starts, window, now)
    assert meter.lacks_only_room(cost, now) == (1 <= room < cost)
    if meter.lacks_only_room(cost, now):
        meter.reserve("big", cost, now)
        assert now < meter.reserved_until <= meter.reserved_deadline == now + window  # by then it fits
        meter.charge("another", 1, now)
        assert meter.reserved_by == "big"
        meter.charge("big", cost, meter.reserved_until)
        assert meter.reserved_by is None


@pytest.mark.parametrize("kind", [Concurrency(1), Delay("10us"), EvenlySpaced(1, per="10us"), Unlimited()], ids=repr)
def test_what_counts_a_job_as_one_never_lacks_only_room(kind: Kind) -> None:
    meter = meter_of(kind)
    meter.charge("job", 1, 0)
    assert not meter.lacks_only_room(5, 0)
    assert meter.fits(10**6)


def test_the_most_that_ever_fits_is_the_smallest_rate() -> None:
    meter = meter_of(Rate(7, per="1s") & Rate(5, per="1ms") & Concurrency(1))
    assert meter.most() == 5
    assert meter.fits(5) and not meter.fits(6)
    assert meter_of(Concurrency(1)).most() == NEVER


def test_a_cost_that_never_fits_is_never_admitted() -> None:
    meter = meter_of(Rate(3, per="1s"))
    assert meter.opens_at(4) == NEVER


# forgetting


@given(
    st.lists(parts.filter(lambda kind: not isinstance(kind, EvenlySpaced)), max_size=3).map(
        lambda several: AllOf(*several)
    ),
    st.lists(st.tuples(pauses, st.integers(1, 3)), max_size=20),
    pauses,
    st.lists(st.tuples(pauses, st.integers(1, 3)), max_size=20),
)
def test_a_meter_that_may_be_forgotten_decides_like_a_new_one(
    kind: Kind, asked: list[tuple[int, int]], pause: int, more: list[tuple[int, int]]
) -> None:
    old, new, now = meter_of(kind), meter_of(kind), 0
    for number, (step, cost) in enumerate(asked):
        now += step
        old.charge(str(number), cost, now)
    old.leases.clear()
    now += pause
    if not old.forgettable(now):
        return
    for number, (step, cost) in enumerate(more):
        now += step
        for wanted in (1, 2, 3):
            if new.fits(wanted):
                assert max(old.opens_at(wanted), now) == max(new.opens_at(wanted), now)
        for meter in (old, new):
            meter.charge(str(number), cost, now)


def test_a_meter_with_a_lease_a_hold_a_refusal_or_a_reservation_is_not_forgotten() -> None:
    assert meter_of(Rate(3, per="1s")).forgettable(0)
    leased, held, refused, reserved = (meter_of(Concurrency(1)) for _ in range(4))
    leased.leases.add("job")
    held.hold(11, now=0)
    refused.refuse(None, 0.0, 0)
    reserved.reserve("big", 2, 0)
    assert not any(meter.forgettable(10) for meter in (leased, held, refused, reserved))
    assert held.forgettable(11)
