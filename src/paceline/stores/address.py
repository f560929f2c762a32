"""Addresses of stores: their options, and how they may be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from paceline.checks import check_count
from paceline.durations import parse_duration
from paceline.errors import ConfigError, require

_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def text(value: str, option: str) -> str:
    """An option that is text."""
    return value


def flag(value: str, option: str) -> bool:
    """An option that is on or off."""
    require(value in _FLAGS, option, value, "true or false")
    return _FLAGS[value]


def count(value: str, option: str) -> int:
    """An option that is a whole number."""
    return check_count(int(value) if value.isdecimal() else value, option=option)


def seconds(value: str, option: str) -> float:
    """An option that is a duration, in seconds or as text."""
    number = re.fullmatch(r"\d+(\.\d+)?", value)
    return parse_duration(float(value) if number else value, option=option) / 1_000_000


Options = Mapping[str, Callable[[str, str], Any]]


def split(url: str) -> SplitResult:
    """The parts of a URL; `ConfigError` when it is none."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise wrong(url, f"it is no URL ({error})") from error


def take_options(url: str, own: Options, drivers: Collection[str] = ()) -> tuple[str, dict[str, Any]]:
    """The options of ours in the query of a URL, and the URL without them: the driver gets the rest, if it knows it."""
    place, _, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    if "@" in query and "@" not in place:
        raise wrong(url, "a question mark in a user name or password is written %3F")
    for name, _ in pairs:
        if name not in own and name not in drivers:
            raise _unknown(url, name, own, drivers)
    found = {name: own[name](value, name) for name, value in pairs if name in own}
    if not found:
        return url, found
    rest = urlencode([pair for pair in pairs if pair[0] not in own])
    return f"{place}?{rest}" if rest else place, found


def wrong(url: str, why: str) -> ConfigError:
    """The error for a URL, which shows it without its password."""
    shown = without_password(url)
    return ConfigError(f"url={shown!r} is wrong: {why}", option="url", value=shown)


def _unknown(url: str, name: str, own: Options, drivers: Collection[str]) -> ConfigError:
    close = get_close_matches(name, [*own, *drivers], n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    more = " and the options of the driver" if drivers else ""
    shown = without_password(url)
    text = f"url={shown!r} is wrong: unknown option {name!r}; {guess}expected {', '.join(sorted(own))}{more}"
    return ConfigError(text, option=name, value=shown)


def without_password(url: str) -> str:
    """The address without its password, also when it is no proper URL."""
    url = re.sub(r"([?&]\w*password=)[^&#]*", r"\1***", url)
    scheme, there, rest = url.partition("://") if "://" in url else ("", "", url)
    place = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" not in place and "@" in rest and not re.fullmatch(r"[^:]*(:\d*)?", place):
        place = rest.rpartition("@")[0] + "@"  # a password that should have been percent-encoded
    who, at, _ = place.rpartition("@")
    user, colon, _ = who.partition(":")
    if not at or not colon:
        return url
    return f"{scheme}{there}{user}:***@{rest[len(who) + 1 :]}"


def version_numbers(text: str) -> tuple[int, ...]:
    """ "7.0.15" as (7, 0, 15); what is no number ends it."""
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
