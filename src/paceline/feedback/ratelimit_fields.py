"""The IETF fields `RateLimit` and `RateLimit-Policy`, and the older forms that are still deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .headers import Headers, printable
from .numbers import first_whole, number
from .quota import Quota
from .structured_fields import Item, Value, parse_dictionary, parse_list

_UNNAMED = "default"


def ratelimit_quotas(headers: Headers) -> list[Quota]:
    """One quota per policy; the oldest form only when the newer fields say nothing."""
    limits = headers.read(_policies, "ratelimit-policy") or {}
    quotas = headers.read(_list_or_dictionary, "ratelimit") or [_older_form(headers)]
    quotas = [_with_limit(quota, limits) for quota in quotas if quota.says_something]
    named = {quota.name for quota in quotas}
    return quotas + [Quota(name=name, limit=limit) for name, limit in limits.items() if name not in named]


def _policies(text: str) -> dict[str, int] | None:
    """Limits by name of `"burst";q=100;w=60, "daily";q=1000;w=86400`; draft 7 had no names: `100;w=60`."""
    limits: dict[str, int] = {}
    try:
        for item in parse_list(text) or []:
            named = isinstance(item.value, str)
            limit = _count(item.parameters.get("q") if named else item.value)
            # Of several policies without a name the first is the one in force.
            limits.setdefault(_name(item) if named else _UNNAMED, limit)
    except ValueError:
        return None
    return limits or None


def _list_or_dictionary(text: str) -> list[Quota] | None:
    """`"default";r=50;t=30`; in draft 7 `limit=100, remaining=50, reset=30`."""
    try:
        items = parse_list(text)
        if items is not None:
            return [_from_item(item) for item in items] or None
        return [_from_dictionary({key: item.value for key, item in (parse_dictionary(text) or {}).items()})]
    except ValueError:
        return None


def _from_item(item: Item) -> Quota:
    found = item.parameters
    return Quota(name=_name(item), remaining=_count(found.get("r")), wait=_count_if_present(found, "t"))


def _from_dictionary(found: Mapping[str, Value]) -> Quota:
    return Quota(
        name=_UNNAMED,
        limit=_count_if_present(found, "limit"),
        remaining=_count(found.get("remaining")),
        wait=_count_if_present(found, "reset"),
    )


def _older_form(headers: Headers) -> Quota:
    return Quota(
        name=_UNNAMED,
        limit=headers.read(first_whole, "ratelimit-limit"),
        remaining=headers.read(number, "ratelimit-remaining"),
        # The drafts say seconds, GitLab sends an epoch; ResetTime is GitLab's too.
        wait=headers.reset("ratelimit-reset", "ratelimit-resettime"),
    )


def _with_limit(quota: Quota, limits: Mapping[str, int]) -> Quota:
    return replace(quota, limit=limits.get(quota.name)) if quota.limit is None else quota


def _name(item: Item) -> str:
    if not isinstance(item.value, str):
        raise ValueError(f"{item.value!r} is not a name")
    return printable(item.value)


def _count(value: Value | None) -> int:
    # `type`, because True is an int as well.
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _count_if_present(found: Mapping[str, Value], key: str) -> int | None:
    return _count(found[key]) if key in found else None
