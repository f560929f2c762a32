"""Fields that carry what they count in their name: one family of them gives one quota per unit."""

from __future__ import annotations

import re

from .headers import Headers, printable
from .numbers import first_whole, number
from .quota import Quota


def quotas_by_unit(headers: Headers, field: re.Pattern[str]) -> list[Quota]:
    """The quotas of the headers that match `field`, a pattern with the groups `unit` and `part`."""
    names: dict[str, dict[str, list[str]]] = {}
    for name in headers.fields:
        match = field.fullmatch(name)
        if match is not None:
            names.setdefault(match["unit"], {}).setdefault(match["part"], []).append(name)
    return [_quota(headers, unit, parts) for unit, parts in names.items() if _is_counted(unit, parts)]


def _is_counted(unit: str, parts: dict[str, list[str]]) -> bool:
    # A reset alone may be -reset-after, -reset-ms or -unified-7d-reset: no unit, not always seconds, or of a plan.
    return "limit" in parts or "remaining" in parts or "request" in unit or "token" in unit


def _quota(headers: Headers, unit: str, parts: dict[str, list[str]]) -> Quota:
    return Quota(
        name=printable(unit),
        limit=headers.read(first_whole, *parts.get("limit", [])),
        remaining=headers.read(number, *parts.get("remaining", [])),
        wait=headers.reset(*parts.get("reset", [])),
    )
