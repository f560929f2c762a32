"""Running at the same time: live leases are counted, so a slot can neither leak nor be freed twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.clock import NEVER
from paceline.limits import Concurrency
from paceline.limits.admission import Meter
from paceline.limits.kind import Admitted, Refused, admit

from .strategies import counts

jobs = st.integers(0, 9).map(str)


@given(counts, st.integers(0, 10), st.integers(1, 100))
def test_it_is_open_exactly_while_fewer_than_the_maximum_run(most: int, running: int, cost: int) -> None:
    decision = admit(Concurrency(most), None, running, cost, now=5)
    assert decision == (Admitted() if running < most else Refused(NEVER))


@given(counts, st.lists(st.tuples(st.sampled_from(["start", "end"]), jobs), max_size=60))
def test_a_meter_counts_leases_as_a_set(most: int, events: list[tuple[str, str]]) -> None:
    meter, running = Meter(("limit", None), Concurrency(most)), []
    for event, job in events:
        if event == "end":  # ending twice, or what never started, frees nothing
            meter.leases.discard(job)
            running = [other for other in running if other != job]
        elif meter.opens_at(1) == 0 and job not in running:
            meter.charge(job, 1, 0)
            running.append(job)
        assert sorted(meter.leases) == sorted(running)
        assert len(running) <= most
        assert (meter.opens_at(1) == 0) == (len(running) < most)


@given(counts, counts, st.integers(0, 8))
def test_a_lowered_maximum_starts_nobody_until_they_are_below_it(before: int, after: int, running: int) -> None:
    meter = Meter(("limit", None), Concurrency(before))
    for job in range(running):
        meter.charge(str(job), 1, 0)
    meter.change(Concurrency(after))
    while meter.leases:
        assert (meter.opens_at(1) <= 0) == (len(meter.leases) < after)
        meter.leases.pop()
    assert meter.opens_at(1) <= 0


def test_it_shows_how_many_run() -> None:
    kind = Concurrency(3)
    assert kind.used(kind.new_state(), 2, 0) == 2
    assert kind.allowed == 3
    assert kind.fits(1_000)
    assert kind.dump(kind.new_state()) == []
    assert kind.load([]) is None
    assert kind.forget_after(None) == 0
