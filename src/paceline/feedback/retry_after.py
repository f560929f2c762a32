"""The time a service names outright: `retry-after-ms`, `Retry-After`, `X-RateLimit-Retry-After`."""

from __future__ import annotations

from .dates import date
from .headers import Headers
from .numbers import number


def retry_after(headers: Headers) -> float | None:
    """Seconds to wait, negative when the named date has passed; None when no time is named."""
    wait = headers.read(_milliseconds, "retry-after-ms")
    if wait is None:
        names = ("retry-after", "x-ratelimit-retry-after", "x-rate-limit-retry-after")
        wait = headers.read(lambda text: _seconds_or_date(text, headers.server_now), *names)
    return wait


def _milliseconds(text: str) -> float | None:
    value = _longest(text)
    return None if value is None else value / 1000


def _seconds_or_date(text: str, server_now: float) -> float | None:
    seconds = _longest(text)
    if seconds is not None:
        return seconds
    instant = date(text, server_now)
    return None if instant is None else instant - server_now


def _longest(text: str) -> float | None:
    # A service and the proxy before it may each have said one; both must be satisfied.
    values = [number(part) for part in text.split(",")]
    known = [float(value) for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
