"""Addresses as they may be shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit


def without_password(url: str) -> str:
    """The address without its password."""
    parts = urlsplit(url)
    if "password=" in parts.query:
        parts = parts._replace(query=re.sub(r"(password=)[^&]*", r"\1***", parts.query))
    if parts.password is None:
        return urlunsplit(parts) if "password=" in parts.query else url
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{place}"))


def version_numbers(text: str) -> tuple[int, ...]:
    """ "7.0.15" as (7, 0, 15); what is no number ends it."""
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
