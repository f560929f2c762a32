"""When a counter is full again, for the fields in which every service writes its own kind of time."""

from __future__ import annotations

from .dates import date
from .numbers import duration, number


def wait_until(text: str, server_now: float) -> float | None:
    """Seconds until the reset that `text` names: a duration, a date, or a number of undocumented meaning."""
    relative = duration(text)
    if relative is not None:
        return relative
    instant: float | None
    value = number(text)
    if value is None:
        instant = date(text, server_now)
    elif value > 1e12:
        instant = value / 1000
    elif value > 1e9:
        instant = value
    else:
        return float(value)
    return None if instant is None else instant - server_now
