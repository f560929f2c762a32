"""Numbers and Go durations: the vectors of the research page, and what must not be taken for one."""

from __future__ import annotations

import pytest

from paceline.feedback.numbers import duration, first_whole, number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("20ms", 0.02),
        ("2m52.8s", 172.8),
        ("1h2m3.5s", 3723.5),
        ("1d", 86400),
        ("12ms", 0.012),
        ("33.023s", 33.023),
        ("1h30m", 5400),
        ("500us", 0.0005),
        ("500\u00b5s", 0.0005),
        ("500\u03bcs", 0.0005),
        ("500\u00c2\u00b5s", 0.0005),
        ("100ns", 1e-7),
        ("0s", 0),
    ],
)
def test_a_go_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["64", "-1", "", "P1D", "6m 0s", "60sec", "-1s", "+1s", "s", "1.s", "1s!", "9" * 400 + "s"]
)
def test_other_text_is_not_a_go_duration(text: str) -> None:
    assert duration(text) is None


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("98", 98), (" 7 ", 7), ("98.0", 98.0), ("0.25", 0.25)])
def test_a_number_keeps_its_kind(text: str, value: float) -> None:
    read = number(text)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "nan", "inf", "1e9", "1_000", "0x10", "1,000", ".5", "5.", "٣", "9" * 400]
)
def test_other_text_is_not_a_number(text: str) -> None:
    assert number(text) is None


def test_the_limit_in_force_is_the_first_of_a_list() -> None:
    assert first_whole("10, 10;w=1, 1000;w=3600") == 10
    assert first_whole("100;w=60") == 100
    assert first_whole("many, 10") is None
