"""Durations and rates: what is accepted, what is refused and in which words, and that nothing is rounded."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.durations import LONGEST, format_duration, parse_duration, parse_rate
from paceline.errors import ConfigError
from paceline.text import show

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        (30, 30 * SECOND),
        (0.25, 250_000),
        (0.1, 100_000),
        (1e-6, 1),
        (timedelta(minutes=1, microseconds=1), MINUTE + 1),
        ("250ms", 250_000),
        ("1.5s", 1_500_000),
        ("0.1s", 100_000),
        ("0.000001s", 1),
        ("1h30m", HOUR + 30 * MINUTE),
        ("1h 30m", HOUR + 30 * MINUTE),
        ("1 hour 30 minutes", HOUR + 30 * MINUTE),
        (" 2 days ", 2 * DAY),
        ("1 week", 7 * DAY),
        ("1w2d3h4m5s6ms7us", 9 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6_007),
        ("10us", 10),
        ("10µs", 10),
        ("10μs", 10),
        ("5 min", 5 * MINUTE),
        ("5 MIN", 5 * MINUTE),
        ("1H30M", HOUR + 30 * MINUTE),
        ("PT5M", 5 * MINUTE),
        ("pt1.5s", 1_500_000),
        ("P1DT2H", DAY + 2 * HOUR),
        ("P2W", 14 * DAY),
    ],
)
def test_a_duration_is_read_as_exact_microseconds(value: Any, microseconds: int) -> None:
    assert parse_duration(value, option="per") == microseconds


@pytest.mark.parametrize(
    "value",
    [
        *(True, False, None, [], b"5s", 1j),
        *(0, 0.0, -1, -0.5, 1e-7, math.nan, math.inf, -math.inf),
        *(timedelta(0), timedelta(microseconds=-1), timedelta(days=400_000)),
        *("", " ", "5 parsecs", "30", "s", "1h30", "-5s", "+5s", "1e3s", "1_000s", "1,5s", ".5s", "5.s", "٣s"),
        *("0s", "1.5us", "0.0000001s", "1.0000001s", "1 month", "1h1h", "30m1h", "1h and 30m", "1:30"),
        *("P", "PT", "P1DT", "P1M", "P1Y", "PT5", "P5M", "P1S", "P 1D", "PTT1S", "1p5s"),
        *("1001000 years", "400000d", "9" * 20 + "w", "9" * 5000 + "s", 10**30, 1e300),
    ],
)
def test_a_wrong_duration_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_duration(value, option="per")

    assert refusal.value.option == "per"
    assert refusal.value.value is value
    assert str(refusal.value).startswith(f"per={show(value)} is wrong: expected a positive duration such as 30, ")


def test_the_error_names_the_option_the_value_and_what_is_expected() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_duration("5 parsecs", option="per")

    assert str(refusal.value) == (
        """per='5 parsecs' is wrong: expected a positive duration such as 30, "250ms", "1.5s" or "1h30m\""""
    )


def test_the_error_can_say_what_this_option_expects() -> None:
    with pytest.raises(ConfigError, match=r"^lease=0 is wrong: expected at least one second$"):
        parse_duration(0, option="lease", expected="at least one second")


def test_a_duration_that_is_too_long_is_told_the_maximum() -> None:
    assert parse_duration("365250d", option="keep") == LONGEST

    with pytest.raises(ConfigError, match=r"at most 1000 years$"):
        parse_duration("365250d 1us", option="keep")


@pytest.mark.parametrize("value", [0, 0.0, -0.0, timedelta(0), "0s", "0ms", "PT0S"])
def test_zero_is_accepted_where_the_option_allows_it(value: Any) -> None:
    assert parse_duration(value, option="guard", zero=True) == 0


@pytest.mark.parametrize("value", [False, -1, -1e-9, 1e-9, "", "-0.1s", timedelta(microseconds=-1)])
def test_allowing_zero_allows_nothing_else_that_is_wrong(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^guard=.* is wrong: expected zero or a positive duration such as "):
        parse_duration(value, option="guard", zero=True)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (999, "999us"),
        (1_500, "1.5ms"),
        (250_000, "250ms"),
        (SECOND, "1s"),
        (1_500_000, "1.5s"),
        (10 * SECOND, "10s"),
        (SECOND + 1, "1.000001s"),
        (MINUTE, "1m"),
        (MINUTE + 250_000, "1m250ms"),
        (90 * MINUTE, "1h30m"),
        (DAY + SECOND, "1d1s"),
        (7 * DAY, "7d"),
    ],
)
def test_a_duration_is_shown_in_its_short_form(microseconds: int, text: str) -> None:
    assert format_duration(microseconds) == text


def test_a_negative_duration_cannot_be_shown() -> None:
    with pytest.raises(ValueError, match="-1"):
        format_duration(-1)


@given(st.integers(0, LONGEST) | st.integers(0, 2 * MINUTE))
@example(0)
@example(LONGEST)
def test_what_is_shown_reads_back_as_the_same_duration(microseconds: int) -> None:
    text = format_duration(microseconds)

    assert parse_duration(text, option="per", zero=True) == microseconds


@given(st.integers(1, LONGEST))
def test_a_timedelta_and_its_number_of_seconds_as_text_agree(microseconds: int) -> None:
    seconds = f"{microseconds // SECOND}.{microseconds % SECOND:06} seconds"

    assert parse_duration(seconds, option="per") == microseconds
    assert parse_duration(timedelta(microseconds=microseconds), option="per") == microseconds


@given(st.integers(1, 10**15))
def test_a_float_of_seconds_is_the_nearest_microsecond(microseconds: int) -> None:
    assert parse_duration(microseconds / SECOND, option="per") == microseconds


@given(st.text() | st.text(alphabet="0123456789.hmsdwuPT /per", max_size=12))
def test_any_text_is_a_duration_or_a_config_error(text: str) -> None:
    try:
        microseconds = parse_duration(text, option="per")
    except ConfigError:
        return

    assert 0 < microseconds <= LONGEST


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/min", (100, MINUTE)),
        ("10/s", (10, SECOND)),
        ("10/m", (10, MINUTE)),
        ("10/minute", (10, MINUTE)),
        ("100 per hour", (100, HOUR)),
        ("100 PER Hour", (100, HOUR)),
        (" 100 / min ", (100, MINUTE)),
        ("5 per 10s", (5, 10 * SECOND)),
        ("5/250ms", (5, 250_000)),
        ("1000/day", (1000, DAY)),
        ("7/1h30m", (7, 90 * MINUTE)),
        ("7/PT5M", (7, 5 * MINUTE)),
    ],
)
def test_a_rate_is_read_as_how_many_per_microseconds(text: str, rate: tuple[int, int]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        *("", "100", "/min", "100/", "100 min", "100per min", "100 permin", "100//min", "1/2/s", "100/5", "100/parsec"),
        *("0/s", "-1/s", "1.5/s", "1_000/s", "1e3/s", "10/0s", "10/-1s", "10/1.5us", "10/400000d", "9" * 5000 + "/s"),
        *(None, 100, True, (100, "1m")),
    ],
)
def test_a_wrong_rate_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_rate(text)

    assert refusal.value.option == "rate"
    assert str(refusal.value) == f'rate={show(text)} is wrong: expected a rate such as "10/s", "100/min" or "5 per 10s"'


@given(st.integers(1, 10**18 - 1), st.integers(1, LONGEST))
def test_a_rate_made_of_a_count_and_a_shown_duration_reads_back(most: int, per: int) -> None:
    assert parse_rate(f"{most}/{format_duration(per)}") == (most, per)
    assert parse_rate(f"{most} per {format_duration(per)}") == (most, per)
