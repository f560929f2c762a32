"""Which of the times in a response counts, and when a response is a refusal: the rules of the research page, 3.1."""

from __future__ import annotations

from email.message import Message

import pytest

from paceline.feedback import Signal, parse

NOW = 1_790_510_400.0  # 2026-09-27T12:00:00Z
EMPTY = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "40"}
LEFT = {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "40"}


def test_milliseconds_win_over_retry_after_which_wins_over_resets() -> None:
    headers = {**EMPTY, "Retry-After": "5"}

    assert parse(429, headers, now=NOW).retry_after == 5
    assert parse(429, {**headers, "retry-after-ms": "250"}, now=NOW).retry_after == 0.25


def test_the_next_rule_counts_when_a_time_is_nonsense() -> None:
    headers = {**EMPTY, "Retry-After": "5"}

    assert parse(429, {**headers, "retry-after-ms": "soon"}, now=NOW).retry_after == 5
    assert parse(429, {**headers, "Retry-After": "soon"}, now=NOW).retry_after == 40


def test_the_latest_reset_of_what_is_used_up_counts() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-ratelimit-remaining-images": "4",
        "x-ratelimit-reset-images": "2h",
    }

    signal = parse(429, headers, now=NOW)

    assert signal.retry_after == 360
    assert signal.reason == "requests, tokens"


def test_less_than_the_cost_is_used_up() -> None:
    assert parse(200, LEFT, now=NOW, cost=3).retry_after is None
    assert parse(200, LEFT, now=NOW, cost=4).retry_after == 40


def test_the_last_one_is_not_used_up_and_zero_is_whatever_the_cost() -> None:
    last_one = {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "40"}
    less_than_one = {"X-RateLimit-Remaining": "0.5", "X-RateLimit-Reset": "40"}

    assert parse(200, last_one, now=NOW).retry_after is None
    assert parse(200, less_than_one, now=NOW).retry_after == 40
    assert parse(200, less_than_one, now=NOW, cost=0).retry_after is None
    assert parse(200, EMPTY, now=NOW, cost=0).retry_after == 40


def test_a_cost_in_tokens_is_not_held_against_the_requests() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "1h",
        "x-ratelimit-remaining-tokens": "4000",
        "x-ratelimit-reset-tokens": "10s",
    }

    assert parse(200, headers, now=NOW, cost=4000).retry_after is None
    assert parse(200, headers, now=NOW, cost=4001).retry_after == 10


def test_a_cost_is_held_against_requests_where_nothing_else_is_counted() -> None:
    headers = {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "10s"}

    assert parse(200, headers, now=NOW, cost=5).retry_after == 10


def test_a_success_with_something_left_names_no_time() -> None:
    assert parse(200, LEFT, now=NOW).retry_after is None
    assert parse(200, {**LEFT, "Retry-After": "9"}, now=NOW).retry_after is None


def test_an_explicit_time_counts_where_nothing_is_counted() -> None:
    assert parse(200, {"Retry-After": "9"}, now=NOW).retry_after == 9
    assert parse(400, {**LEFT, "Retry-After": "9"}, now=NOW).retry_after == 9


def test_a_success_that_used_the_last_one_names_the_reset_and_is_not_limited() -> None:
    signal = parse(200, EMPTY, now=NOW)

    assert not signal.limited
    assert signal.retry_after == 40
    assert signal.reason == "default"


@pytest.mark.parametrize("status", [202, 300, 307, 399])
def test_when_to_poll_or_to_follow_is_not_about_limits(status: int) -> None:
    assert parse(status, {"Retry-After": "9"}, now=NOW).retry_after is None
    assert parse(status, {**EMPTY, "Retry-After": "9"}, now=NOW).retry_after == 40


def test_a_refusal_that_does_not_say_what_is_used_up_waits_for_the_latest_unknown() -> None:
    headers = {"x-ratelimit-reset-requests": "100ms", "x-ratelimit-reset-tokens": "500ms", **LEFT}

    assert parse(429, headers, now=NOW).retry_after == 0.5


@pytest.mark.parametrize("status", [200, 404, 529])
def test_only_a_429_means_that_something_unknown_is_used_up(status: int) -> None:
    assert parse(status, {"x-ratelimit-reset-tokens": "55"}, now=NOW).retry_after is None


def test_an_absolute_time_is_counted_from_the_date_of_the_response() -> None:
    ten_minutes_behind = {"Date": "Sun, 27 Sep 2026 11:50:00 GMT"}
    by_date = {**ten_minutes_behind, "Retry-After": "Sun, 27 Sep 2026 11:51:00 GMT"}
    by_epoch = {**ten_minutes_behind, "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) - 540)}

    assert parse(429, by_date, now=NOW).retry_after == 60
    assert parse(429, by_epoch, now=NOW).retry_after == 60
    assert parse(429, by_epoch, now=NOW).dimensions[0].reset_at == NOW + 60


def test_a_relative_time_does_not_care_about_the_date_of_the_response() -> None:
    headers = {**EMPTY, "Date": "Sun, 27 Sep 2026 11:50:00 GMT"}

    assert parse(429, headers, now=NOW).retry_after == 40


@pytest.mark.parametrize(
    ("reset", "wait"),
    [
        ("1000000000", 86400),
        ("1000000001", 0),
        ("1790510460", 60),
        ("1790510460.5", 60.5),
        ("1000000000000", 86400),
        ("1000000000001", 0),
        ("1790510460000", 60),
        ("1790510460500", 60.5),
        ("60", 60),
        ("0", 0),
    ],
)
def test_the_size_of_a_reset_decides_what_it_means(reset: str, wait: float) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}

    assert parse(429, headers, now=NOW).retry_after == wait


def test_a_time_that_has_passed_is_no_wait() -> None:
    past = "Sun, 27 Sep 2026 11:00:00 GMT"

    assert parse(429, {"Retry-After": past}, now=NOW).retry_after == 0
    assert parse(429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": past}, now=NOW).retry_after == 0


def test_no_wait_is_longer_than_the_maximum() -> None:
    assert parse(429, {"Retry-After": "100000"}, now=NOW).retry_after == 86400
    assert parse(429, {"Retry-After": "100"}, now=NOW, maximum=30).retry_after == 30
    assert parse(429, EMPTY, now=NOW, maximum=30).retry_after == 30


def test_a_capped_wait_leaves_the_reset_itself_as_it_was() -> None:
    assert parse(429, EMPTY, now=NOW, maximum=30).dimensions[0].reset_at == NOW + 40


@pytest.mark.parametrize(
    ("status", "headers", "limited"),
    [
        (200, {}, False),
        (200, EMPTY, False),
        (401, {"Retry-After": "5"}, False),
        (403, {}, False),
        (403, LEFT, False),
        (403, EMPTY, True),
        (403, {"Retry-After": "5"}, True),
        (403, {"Retry-After": "soon"}, False),
        (429, {}, True),
        (500, {"Retry-After": "5"}, False),
        (503, {}, False),
        (503, {"Retry-After": "5"}, True),
        (503, {"Retry-After": "0"}, True),
        (503, {"Retry-After": "soon"}, False),
        (529, {}, True),
    ],
)
def test_the_status_and_what_is_said_decide_whether_it_is_a_refusal(
    status: int, headers: dict[str, str], limited: bool
) -> None:
    assert parse(status, headers, now=NOW).limited is limited


def test_a_response_that_says_nothing_says_nothing() -> None:
    assert parse(200, {}, now=NOW) == Signal(limited=False, retry_after=None, dimensions=(), reason=None)


def test_a_repeated_retry_after_means_the_longer_one() -> None:
    pairs = [("Retry-After", "5"), ("retry-after", "30")]

    assert parse(429, pairs, now=NOW).retry_after == 30
    assert parse(429, {"retry-after": "5, 30"}, now=NOW).retry_after == 30


def test_headers_may_be_pairs_or_bytes_or_a_message() -> None:
    message = Message()
    message["RETRY-AFTER"] = "5"

    assert parse(429, [(b"Retry-After", b"5")], now=NOW).retry_after == 5
    assert parse(429, iter([("reTry-afTer", " 5 ")]), now=NOW).retry_after == 5
    assert parse(429, {"RETRY-AFTER": b"5"}, now=NOW).retry_after == 5
    assert parse(429, message, now=NOW).retry_after == 5


def test_repeated_ratelimit_fields_are_one_list() -> None:
    pairs = [("RateLimit", '"a";r=0;t=5'), ("RateLimit", '"b";r=0;t=9')]

    signal = parse(429, pairs, now=NOW)

    assert [dimension.name for dimension in signal.dimensions] == ["a", "b"]
    assert signal.retry_after == 9
