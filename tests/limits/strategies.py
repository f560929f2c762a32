"""Kinds with small numbers, so that borders are met often, and the steps that drive them."""

from __future__ import annotations

from hypothesis import strategies as st

from paceline import limits
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited

NAMES = {name: getattr(limits, name) for name in limits.__all__}
"""What `eval(repr(kind))` may use: the public names and nothing else."""

counts = st.integers(1, 6)
windows = st.integers(1, 40)
pauses = st.integers(0, 45) | st.sampled_from([0, 0, 0, 1])
"""How long until the next question; often no time at all."""


def micros(number: int) -> str:
    return f"{number}us"


def _rate(most: int, per: int, guard: int | None) -> Rate:
    return Rate(most, micros(per), None if guard is None else micros(min(guard, per)))


rates = st.builds(_rate, counts, windows, st.none() | st.integers(0, 3))
concurrencies = st.builds(Concurrency, counts)
delays = st.builds(lambda gap: Delay(micros(gap)), windows)
spacings = st.builds(lambda most, per: EvenlySpaced(most, micros(per)), counts, windows)
parts = rates | concurrencies | delays | spacings
kinds: st.SearchStrategy[Kind] = (
    parts
    | st.just(Unlimited())
    | st.builds(lambda several: AllOf(*several), st.lists(parts | st.just(Unlimited()), max_size=4))
)

large = st.integers(1, 10**15)
any_kinds: st.SearchStrategy[Kind] = st.recursive(
    st.builds(_rate, large, large, st.none() | st.integers(0, 10**15))
    | st.builds(Concurrency, large)
    | st.builds(lambda gap: Delay(micros(gap)), large)
    | st.builds(lambda most, per: EvenlySpaced(most, micros(per)), large, large)
    | st.just(Unlimited()),
    lambda inner: st.builds(lambda several: AllOf(*several), st.lists(inner, max_size=3)),
    max_leaves=6,
)
"""Numbers of every size: up to thirty years in microseconds."""
