"""Numbers and durations as services write them; everything else is None."""

from __future__ import annotations

import re

# Fifteen digits is what structured fields allow, and no float or int conversion can fail below it.
# float() and int() alone would also take "nan", "1_000", "1e9" and digits of other scripts.
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]+)?")
_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)(ms|us|µs|μs|Âµs|ns|d|h|m|s)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "ns": 1e-9}
_MICROSECOND = 1e-6


def number(text: str) -> float | int | None:
    """A non-negative number; an int when it is written without a fraction."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[0]) if match[1] else int(match[0])


def first_whole(text: str) -> int | None:
    """The first number of a list such as `10, 10;w=1, 1000;w=3600`: the limit in force, before its policies."""
    value = number(re.split("[,;]", text, maxsplit=1)[0])
    return None if value is None else int(value)


def duration(text: str) -> float | None:
    """A Go duration such as `2m52.8s`, in seconds; days too, which Go itself does not write."""
    if _DURATION.fullmatch(text.strip()) is None:
        return None
    return sum(float(amount) * _SECONDS.get(unit, _MICROSECOND) for amount, unit in _PART.findall(text))
