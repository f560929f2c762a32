"""Nonsense in a header is ignored with a warning; whatever arrives, `parse` answers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.feedback import parse

NOW = 1_790_510_400.0
NUMERIC = [
    "Retry-After",
    "retry-after-ms",
    "X-RateLimit-Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Reset-After",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "anthropic-ratelimit-tokens-reset",
    "RateLimit",
    "RateLimit-Policy",
    "RateLimit-Reset",
    "X-Shopify-Shop-Api-Call-Limit",
    "Date",
]
NONSENSE = ["-5", "nan", "inf", "9" * 400, "", "soon", "1e400", "\x00\x01", ";5", "٣", "Infinity", "1/0/0", "--"]


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_is_ignored_with_a_warning(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    signal = parse(429, {name: value}, now=NOW)

    assert signal.retry_after is None
    assert signal.dimensions == ()
    [record] = caplog.records
    assert record.name == "paceline.feedback"
    assert record.levelname == "WARNING"
    assert repr(name.lower()) in record.getMessage()


def test_a_warning_shows_at_most_eighty_characters_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    parse(429, {"Retry-After": "no\r\nthing " + "9" * 400}, now=NOW)

    [record] = caplog.records
    assert isinstance(record.args, tuple)
    assert len(str(record.args[1])) == 80
    assert "\n" not in record.getMessage()


def test_eighty_characters_are_shown_whole(caplog: pytest.LogCaptureFixture) -> None:
    parse(429, {"Retry-After": "x" * 80}, now=NOW)

    assert repr("x" * 80) in caplog.text


def test_bytes_that_are_no_text_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    assert parse(429, {"Retry-After": b"\xff\xfe\x00"}, now=NOW).retry_after is None
    assert "retry-after" in caplog.text


def test_one_bad_header_does_not_hide_a_good_one() -> None:
    headers = {"X-RateLimit-Limit": "many", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "7"}

    assert parse(429, headers, now=NOW).retry_after == 7


@pytest.mark.parametrize(
    "value", ['"a";t=5', '"a";r=-1;t=5', '"a";r=0;t=-5', '"a";r=?1', "5;r=0;t=5", "remaining=0, reset=-1", "reset=5"]
)
def test_a_ratelimit_field_without_its_counts_is_ignored(value: str, caplog: pytest.LogCaptureFixture) -> None:
    assert parse(429, {"RateLimit": value}, now=NOW).dimensions == ()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", ["x-ratelimit-reset-ms", "x-ratelimit-reset-time"])
def test_a_reset_in_an_unknown_unit_is_no_dimension(name: str) -> None:
    assert parse(429, {name: "30000"}, now=NOW).dimensions == ()


def test_names_and_reasons_from_outside_are_fit_to_be_shown() -> None:
    headers = {"X-RateLimit-Resource": "co\x1b[31mre" + "e" * 500, "X-RateLimit-Remaining": "0"}
    headers["Stripe-Rate-Limited-Reason"] = "global\r\n-rate"

    signal = parse(429, headers, now=NOW)

    assert signal.reason == "global-rate"
    assert signal.dimensions[0].name.startswith("co[31mree")
    assert len(signal.dimensions[0].name) == 80


def test_an_empty_name_or_reason_is_none_at_all() -> None:
    headers = {"X-RateLimit-Bucket": " ", "X-RateLimit-Remaining": "0", "X-RateLimit-Scope": "\x00"}

    signal = parse(429, headers, now=NOW)

    assert signal.dimensions[0].name == "default"
    assert signal.reason == "default"


def test_a_reset_in_a_million_years_can_still_be_shown() -> None:
    signal = parse(429, {"RateLimit": '"a";r=0;t=999999999999999'}, now=NOW)

    assert signal.retry_after == 86400
    assert signal.dimensions[0].reset_at is not None
    assert datetime.fromtimestamp(signal.dimensions[0].reset_at, UTC).year == 9999


NAMES = st.sampled_from(
    [
        *NUMERIC,
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-ResetTime",
        "X-RateLimit-Next",
        "X-RateLimit-Resource",
        "X-RateLimit-Scope",
        "x-rate-limit-reset-tokens",
        "x-ratelimit-limit-requests",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-priority-input-tokens-limit",
    ]
)
PIECES = st.sampled_from(
    [
        *("0", "1", "64", "-1", "1790510460", "1790510460000", "2.0", "9" * 400, "nan", "inf", "1e9", "32/40", "/"),
        *("6m0s", "20ms", "1h", "P1D", '"a"', '"', ";r=0", ";t=30", ";q=5", ";w=1", "r", "=", ";", ",", " ", ":YQ:"),
        *("limit=1", "remaining=0", "reset=30", "2026-09-27T12:05:00Z", "9999-12-31T23:59:59-23:59", "\x00", "\\"),
        *("0001-01-01T00:00:00+23:59", "Wed, 21 Oct 2015 07:28:00 GMT", "Wednesday, 21-Oct-15 07:28:00 GMT", "GMT"),
        *("Wed Oct 21 07:28:00 2015", "Fri, 31 Dec 9999 23:59:60 GMT", "Mon, 01 Jan 0001 00:00:00 +9959", "\ud800"),
    ]
)
LIKELY = st.lists(PIECES, max_size=4).map("".join)
VALUES = st.one_of(LIKELY, st.text(), st.binary(), LIKELY.map(lambda text: text.encode("utf-8", "replace")))


@settings(deadline=None)
@given(
    status=st.one_of(st.sampled_from([200, 202, 301, 403, 429, 500, 503, 529]), st.integers()),
    headers=st.lists(st.tuples(st.one_of(NAMES, st.text(), st.binary()), VALUES), max_size=8),
    now=st.floats(min_value=0, max_value=4e9),
    cost=st.integers(min_value=0, max_value=10**9),
    maximum=st.floats(min_value=0, max_value=1e9),
)
def test_whatever_the_headers_say_the_wait_is_none_or_between_zero_and_the_maximum(
    status: int,
    headers: list[tuple[str | bytes, str | bytes]],
    now: float,
    cost: int,
    maximum: float,
) -> None:
    signal = parse(status, headers, now=now, cost=cost, maximum=maximum)

    assert signal.retry_after is None or 0 <= signal.retry_after <= maximum
    for dimension in signal.dimensions:
        assert dimension.limit is None or dimension.limit >= 0
        assert dimension.remaining is None or dimension.remaining >= 0
        assert dimension.reset_at is None or abs(dimension.reset_at) < 3e11


@settings(deadline=None)
@given(seconds=st.integers(min_value=0, max_value=86400))
def test_whole_seconds_are_taken_as_they_are(seconds: int) -> None:
    assert parse(429, {"Retry-After": str(seconds)}, now=NOW).retry_after == seconds


@settings(deadline=None)
@given(instant=st.datetimes(datetime(1980, 1, 1), datetime(2070, 1, 1)).map(lambda at: at.replace(microsecond=0)))
def test_every_form_of_a_date_names_the_same_wait(instant: datetime) -> None:
    known = instant.replace(tzinfo=UTC)
    forms = [
        known.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        known.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
        known.ctime(),
        known.isoformat(),
    ]
    expected = max(0.0, known.timestamp() - NOW)

    assert {parse(429, {"Retry-After": form}, now=NOW, maximum=1e10).retry_after for form in forms} == {expected}
