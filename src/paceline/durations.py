"""Durations and rates as people write them, turned into integer microseconds and back.

Called wherever an option takes a duration; nothing behind it ever sees a float or a unit.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from paceline.errors import require

Duration: TypeAlias = int | float | timedelta | str
"""Seconds, a timedelta, or text such as "250ms", "1.5s", "1h30m", "2 days" or "PT5M"."""

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
LONGEST = 365_250 * DAY
"""A thousand years: whoever asks for more mistook the unit."""

_EXPECTED = 'a positive duration such as 30, "250ms", "1.5s" or "1h30m"'
_EXPECTED_OR_ZERO = 'zero or a positive duration such as 30, "250ms", "1.5s" or "1h30m"'
_EXPECTED_RATE = 'a rate such as "10/s", "100/min" or "5 per 10s"'

_NOT_A_DURATION = -1  # refused like every negative number

_NAMES = {
    1: "us μs usec usecs microsecond microseconds",
    MILLISECOND: "ms msec msecs millisecond milliseconds",
    SECOND: "s sec secs second seconds",
    MINUTE: "m min mins minute minutes",
    HOUR: "h hr hrs hour hours",
    DAY: "d day days",
    WEEK: "w week weeks",
}
_UNITS = {name: size for size, names in _NAMES.items() for name in names.split()}

_NUMBER = r"([0-9]{1,20})(?:\.([0-9]{1,20}))?"
_PART = re.compile(rf"{_NUMBER}\s*([a-zμ]+)\s*")
_PARTS = re.compile(rf"(?:{_PART.pattern})+")
_ISO_8601 = re.compile(
    rf"p(?=[0-9t])(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:t(?=[0-9])(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?)?"
)
_RATE = re.compile(r"([0-9]{1,18})(?:\s*/\s*|\s+per\s+)(.+)")


def parse_duration(value: Duration, *, option: str, zero: bool = False, expected: str | None = None) -> int:
    """The duration in microseconds. `ConfigError` about `option` if it is not positive (`zero=True`: or zero).

    Text is exact, and must be a whole number of microseconds; a float is rounded to the nearest one.
    """
    expected = expected or (_EXPECTED_OR_ZERO if zero else _EXPECTED)
    microseconds = _microseconds(value)
    require(microseconds > 0 or (zero and microseconds == 0), option, value, expected)
    require(microseconds <= LONGEST, option, value, f"{expected}, at most 1000 years")
    return microseconds


def format_duration(microseconds: int) -> str:
    """Short text that parses back to the same number: "1h30m", "1.5s", "250ms", "7d"."""
    if microseconds < 0:
        raise ValueError(f"a duration is never negative: {microseconds}")
    parts = []
    rest = microseconds
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        parts.append(_format_below_a_minute(rest))
    return "".join(parts)


def parse_rate(text: str, *, option: str = "rate") -> tuple[int, int]:
    """("100/min") -> (100, 60_000_000): how many, and per how many microseconds."""
    match = _RATE.fullmatch(text.strip().casefold()) if isinstance(text, str) else None
    most, period = (int(match[1]), match[2]) if match else (0, "")
    per = _UNITS.get(period) or _from_text(period)
    require(most > 0 and 0 < per <= LONGEST, option, text, _EXPECTED_RATE)
    return most, per


def _microseconds(value: object) -> int:
    if isinstance(value, str):
        return _from_text(value.strip().casefold())
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, float):
        return _from_float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value) * SECOND
    return _NOT_A_DURATION


def _from_float(seconds: float) -> int:
    below_a_microsecond = 0 < abs(seconds) < 1e-6
    if not math.isfinite(seconds) or below_a_microsecond:
        return _NOT_A_DURATION
    return round(Fraction(seconds) * SECOND)


def _from_text(text: str) -> int:
    """Digits are combined as integers, so "0.1s" is 100000 and nothing is ever rounded."""
    if _ISO_8601.fullmatch(text):
        text = text.replace("p", "").replace("t", "")
    elif not _PARTS.fullmatch(text):
        return _NOT_A_DURATION
    total = 0
    larger_unit = math.inf
    for whole, decimals, unit in _PART.findall(text):
        size = _UNITS.get(unit, math.inf)
        if not size < larger_unit:  # unknown, given twice, or out of order as in "30m1h"
            return _NOT_A_DURATION
        amount, remainder = divmod(int(whole + decimals) * _UNITS[unit], 10 ** len(decimals))
        if remainder:
            return _NOT_A_DURATION
        total += amount
        larger_unit = size
    return total


def _format_below_a_minute(microseconds: int) -> str:
    if 0 < microseconds < MILLISECOND:
        return f"{microseconds}us"
    size, digits, unit = (MILLISECOND, 3, "ms") if 0 < microseconds < SECOND else (SECOND, 6, "s")
    whole, decimals = divmod(microseconds, size)
    return f"{whole}.{decimals:0{digits}}".rstrip("0").rstrip(".") + unit if decimals else f"{whole}{unit}"
