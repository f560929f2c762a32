"""Dates: the three HTTP-dates, RFC 3339, JavaScript's, and text that only looks like one."""

from __future__ import annotations

import pytest

from paceline.feedback.dates import date, http_date, rfc3339

NOW = 1_790_510_400.0  # 2026-09-27T12:00:00Z


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2015",
        "Wed, 21 Oct 2015 07:28:00 -0000",
        "Wed, 21 Oct 2015 09:28:00 +0200",
        "Wed, 21 Oct 2015 03:58:00 -0330",
        "Wed, 21-Oct-2015 07:28:00 GMT",
        "wed, 21 oct 2015 07:28:00 gmt",
    ],
)
def test_every_form_of_http_date_is_the_same_instant(text: str) -> None:
    assert http_date(text, NOW) == 1445412480


def test_an_asctime_day_may_be_padded_with_a_space() -> None:
    assert http_date("Sun Nov  6 08:49:37 1994", NOW) == 784111777


def test_a_two_digit_year_is_at_most_fifty_years_ahead() -> None:
    assert date("Friday, 01-Jan-76 00:00:00 GMT", NOW) == date("Wed, 01 Jan 2076 00:00:00 GMT", NOW)
    assert date("Saturday, 01-Jan-77 00:00:00 GMT", NOW) == date("Sat, 01 Jan 1977 00:00:00 GMT", NOW)


def test_a_leap_second_is_the_second_after() -> None:
    assert http_date("Sat, 31 Dec 2016 23:59:60 GMT", NOW) == http_date("Sun, 01 Jan 2017 00:00:00 GMT", NOW)


def test_the_offset_of_a_javascript_date_is_kept() -> None:
    assert date("Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)", NOW) == 1613462562
    assert date("Tue Feb 16 2021 03:02:42 GMT-0500", NOW) == 1613462562


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-09-27T07:08:00-05:00", "2026-09-27T12:08:00Z"),
        ("2026-09-27T17:38:00+0530", "2026-09-27T12:08:00Z"),
        ("2026-09-27t12:08:00z", "2026-09-27T12:08:00Z"),
        ("2026-09-27 12:08:00Z", "2026-09-27T12:08:00Z"),
        ("2026-09-27T12:08:00.000000000Z", "2026-09-27T12:08:00Z"),
    ],
)
def test_an_rfc_3339_time_is_read_with_its_offset(text: str, same: str) -> None:
    assert rfc3339(text) == rfc3339(same) == NOW + 480


def test_an_rfc_3339_fraction_is_kept() -> None:
    assert rfc3339("2026-09-27T12:00:00.25Z") == NOW + 0.25


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-09-27",
        "2026-09-27T12:08:00",
        "2026-13-27T12:08:00Z",
        "0000-01-01T00:00:00Z",
        "2026-W39-7T12:08:00Z",
        "2026-09-27T12:08:00+25:00",
        "Wed, 31 Feb 2015 07:28:00 GMT",
        "Wed, 21 Foo 2015 07:28:00 GMT",
        "Wed, 21 Oct 0000 07:28:00 GMT",
        "Wed, 21 Oct 2015 25:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:61 GMT",
        "Wed, 21 Oct 2015 07:28:00",
        "Wed, 21 Oct 2015 07:28:00 PST",
        "Wed, 21 Oct 2015",
        "tomorrow",
    ],
)
def test_other_text_is_not_a_date(text: str) -> None:
    assert date(text, NOW) is None
