"""Instants written as text: the three HTTP-dates, RFC 3339, and what JavaScript's `Date` prints."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = "(?P<month>[a-z]{3})"
_TIME = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-5][0-9]|60)"
_OFFSET = "(?P<sign>[+-])(?P<hours>[0-9]{2})(?P<minutes>[0-5][0-9])"
# Not `email.utils.parsedate_tz`: it takes half-readable text, and drops the offset of a JavaScript date.
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"[a-z]{{3}}, (?P<day>[0-9]{{1,2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} (?:GMT|UTC|{_OFFSET})",
        rf"[a-z]{{3,9}}, (?P<day>[0-9]{{1,2}})-{_MONTH}-(?P<year>[0-9]{{2}}|[0-9]{{4}}) {_TIME} GMT",
        rf"[a-z]{{3}} {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
        rf"[a-z]{{3}} {_MONTH} (?P<day>[0-9]{{2}}) (?P<year>[0-9]{{4}}) {_TIME} GMT{_OFFSET}(?: \(.*\))?",
    )
)
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})")
_YEAR = 365.2425 * 86400


def http_date(text: str, now: float) -> float | None:
    """Epoch seconds of an HTTP-date; `now` decides the century of a year with two digits."""
    for form in _FORMS:
        match = form.fullmatch(text.strip())
        if match is not None:
            return _instant(match, now)
    return None


def rfc3339(text: str) -> float | None:
    """Epoch seconds of an RFC 3339 time; without an offset it could be any of 38 instants, so None."""
    text = text.strip().upper()
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def date(text: str, now: float) -> float | None:
    """Epoch seconds of a date in any form that is known here."""
    instant = rfc3339(text)
    return http_date(text, now) if instant is None else instant


def _instant(match: re.Match[str], now: float) -> float | None:
    found = match.groupdict()
    year = int(found["year"])
    if len(found["year"]) == 2:
        # RFC 9110: a two-digit year is never more than fifty years ahead.
        earliest = 1970 + int(now // _YEAR) - 49
        year = earliest + (year - earliest) % 100
    try:
        month = _MONTHS.index(found["month"].lower()) + 1
        minute = datetime(year, month, int(found["day"]), int(found["hour"]), int(found["minute"]), tzinfo=UTC)
    except ValueError:
        return None
    # Seconds are added by hand because datetime refuses the leap second, 60.
    return minute.timestamp() + int(found["second"]) - _offset(found)


def _offset(found: dict[str, str | None]) -> int:
    seconds = int(found.get("hours") or 0) * 3600 + int(found.get("minutes") or 0) * 60
    return -seconds if found.get("sign") == "-" else seconds
