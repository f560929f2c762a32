"""What all kinds have in common: frozen values that print as they are typed, and refuse nonsense in clear words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.durations import LONGEST
from paceline.errors import ConfigError
from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, GroupLimits, Kind, Limit, Rate, Unlimited
from paceline.limits.composite import simplified
from paceline.limits.rule import KINDS, decode_kind, encode_kind

from .strategies import NAMES, any_kinds, micros

ONE_OF_EACH = [
    Rate(5, per="1s"),
    Rate(5, per="1s", guard="1ms"),
    Rate(5, per="1s", guard=0),
    Rate(5, per="1s", guard="1s"),
    Concurrency(5),
    Delay("1s"),
    EvenlySpaced(5, per="1s"),
    Unlimited(),
    Rate(5, per="1s") & Concurrency(2),
]


@given(any_kinds)
def test_what_is_printed_can_be_typed_back_in(kind: Kind) -> None:
    assert eval(repr(kind), dict(NAMES)) == kind


@given(any_kinds, any_kinds)
def test_equal_kinds_are_equal_in_every_way(kind: Kind, other: Kind) -> None:
    again = eval(repr(kind), dict(NAMES))
    assert again == kind and hash(again) == hash(kind) and repr(again) == repr(kind)
    # What admits the same is the same: parts that change nothing make no difference.
    assert (kind == other) == (repr(simplified(kind)) == repr(simplified(other)))
    assert kind == simplified(kind) and hash(kind) == hash(simplified(kind))


def test_different_kinds_differ() -> None:
    assert len(set(ONE_OF_EACH)) == len(ONE_OF_EACH)
    assert EvenlySpaced(5, per="1s") != Rate(5, per="1s")


@pytest.mark.parametrize("kind", ONE_OF_EACH, ids=repr)
def test_nothing_can_be_changed_afterwards(kind: Any) -> None:
    for field in fields(kind):
        with pytest.raises(FrozenInstanceError):
            setattr(kind, field.name, 1)
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        kind.anything_else = 1


@pytest.mark.parametrize("kind", ONE_OF_EACH, ids=repr)
def test_every_kind_is_a_kind_and_combines_with_every_other(kind: Kind) -> None:
    assert isinstance(kind, Kind)
    for other in ONE_OF_EACH:
        assert (kind & other).parts() == (*kind.parts(), *other.parts())


@given(any_kinds)
def test_a_kind_survives_being_stored(kind: Kind) -> None:
    rows = encode_kind(kind)
    assert all(isinstance(value, str | int) for row in rows for value in row.values())
    assert decode_kind(rows).parts() == kind.parts()
    assert [type(part) for part in kind.parts()] == [KINDS[row["kind"]] for row in rows]


@pytest.mark.parametrize("kind", [kind for kind in ONE_OF_EACH if kind.parts()], ids=repr)
def test_a_plain_kind_that_was_stored_is_equal_to_itself(kind: Kind) -> None:
    assert decode_kind(encode_kind(kind)) == kind


def test_the_longest_durations_survive_being_stored() -> None:
    kind = Rate(1, micros(LONGEST), guard=timedelta(microseconds=LONGEST - 1))
    assert decode_kind(encode_kind(kind)) == kind


def test_the_same_duration_in_other_words_is_the_same_kind() -> None:
    assert Delay(1.5) == Delay("1500ms") == Delay(timedelta(seconds=1.5))
    assert EvenlySpaced(3, per=60) == EvenlySpaced(3, per="1m") == EvenlySpaced(3, per="PT1M")


NO_COUNTS: list[Any] = [0, -1, 1.5, 1.0, True, False, None, math.nan, math.inf, 2**53 + 1, [], b"5"]
NO_DURATIONS: list[Any] = [
    0,
    -1,
    -0.5,
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    1e-7,
    "5 parsecs",
    "",
    "0s",
    "-1s",
    "s",
    [],
]
NO_DURATIONS += [timedelta(0), timedelta(seconds=-1), b"5s", LONGEST]
ZEROS = (0, timedelta(0), "0s")
NO_GUARDS = [value for value in NO_DURATIONS if isinstance(value, bool) or value not in ZEROS]
KIND = Concurrency(1)

WRONG: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("max", lambda value: Rate(value, per="1s"), NO_COUNTS),
    ("rate", lambda value: Rate(value), ["5 parsecs", "", "0/s", "-1/s", "1.5/s", "5", "5/", "/s", "5/0s", "five/s"]),
    ("per", lambda value: Rate(5, per=value), [*NO_DURATIONS, None]),
    ("per", lambda value: Rate("5/s", per=value), ["1s", 0]),
    ("guard", lambda value: Rate(5, per="1s", guard=value), [*NO_GUARDS, "1001ms", 1.5]),
    ("max", lambda value: Concurrency(value), [*NO_COUNTS, "5", "5 parsecs"]),
    ("gap", lambda value: Delay(value), [*NO_DURATIONS, None]),
    ("max", lambda value: EvenlySpaced(value, per="1s"), [*NO_COUNTS, "5", "5/s"]),
    ("per", lambda value: EvenlySpaced(5, per=value), [*NO_DURATIONS, None]),
    ("kinds", lambda value: AllOf(KIND, value), [None, 5, "Rate(5)", Rate, object(), [KIND]]),
    ("kinds", lambda value: KIND & value, [None, 5, "5/s", Rate]),
    ("initial", lambda value: Backoff(initial=value), [*NO_DURATIONS, None]),
    ("multiplier", lambda value: Backoff(multiplier=value), [1, 0, -2, 0.5, True, None, "2", math.nan, math.inf]),
    ("maximum", lambda value: Backoff(maximum=value), [*NO_DURATIONS, None, "1s", 0.5]),
    ("name", lambda value: Limit(value, KIND), ["", None, 5, True, "a\nb", "\x00", "x" * 256, b"name"]),
    ("kind", lambda value: Limit("name", value), [None, 5, "5/s", Rate, [KIND]]),
    ("queues", lambda value: Limit("name", KIND, queues=value), ["mail", [], [""], [None], ["a\nb"]]),
    ("tasks", lambda value: Limit("name", KIND, tasks=value), ["send", (), [""], [5]]),
    ("by", lambda value: Limit("name", KIND, by=value), ["tenant", "", True, 0]),
    (
        "overrides",
        lambda value: Limit("name", KIND, by="group", overrides=value),
        [5, [("t", KIND)], {"": KIND}, {5: KIND}],
    ),
    ("overrides", lambda value: Limit("name", KIND, overrides=value), [{"t": KIND}]),
    ("overrides['t']", lambda value: Limit("name", KIND, by="group", overrides={"t": value}), [None, 5, Rate]),
    ("backoff", lambda value: Limit("name", KIND, backoff=value), [5, "1s", Backoff, KIND]),
    ("group.concurrency", lambda value: GroupLimits(concurrency=value), [0, -1, 1.5, True, "5", math.nan]),
    ("group.limiter", lambda value: GroupLimits(limiter=value), [5, "5/s", Rate]),
]


@pytest.mark.parametrize(
    ("option", "make", "value"),
    [
        pytest.param(option, make, value, id=f"{number}-{option}={str(value)[:20]!r}-{index}")
        for number, (option, make, values) in enumerate(WRONG)
        for index, value in enumerate(values)
    ],
)
def test_a_wrong_value_is_refused_by_naming_option_value_and_what_is_expected(
    option: str, make: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(value)
    assert caught.value.option == option
    assert f"{option}=" in str(caught.value) and "expected" in str(caught.value)
    named = caught.value.value
    assert named is value or named == value or _contains(value, named)


def _contains(value: Any, part: Any) -> bool:
    """A list or mapping is refused for the one entry in it that is wrong."""
    return isinstance(value, list | tuple | dict) and part in value


def test_group_limits_without_any_limit_are_refused() -> None:
    with pytest.raises(ConfigError, match="a concurrency, a limiter, or both"):
        GroupLimits()


@given(st.integers(1, 9), st.integers(1, 9))
def test_group_limits_are_the_kind_they_stand_for(running: int, most: int) -> None:
    rate = Rate(most, per="1m")
    assert GroupLimits(concurrency=running).kind == Concurrency(running)
    assert GroupLimits(limiter=rate).kind == rate
    assert GroupLimits(running, rate).kind == Concurrency(running) & rate
    assert eval(repr(GroupLimits(running, rate)), dict(NAMES)) == GroupLimits(running, rate)
