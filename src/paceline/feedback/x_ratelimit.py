"""`X-RateLimit-*` without a unit in the name: GitHub, Discord, Reddit, and almost everybody else."""

from __future__ import annotations

from .headers import Headers, printable
from .numbers import first_whole, number
from .quota import Quota

_PREFIXES = ("x-ratelimit", "x-rate-limit")


def x_ratelimit_quotas(headers: Headers) -> list[Quota]:
    """At most one quota, named after GitHub's resource or Discord's bucket where the service says it."""
    # Relative first: it needs no agreement on what time it is. `Next` is Akamai's.
    wait = headers.read(number, *_spellings("reset-after"))
    if wait is None:
        wait = headers.reset(*_spellings("reset"), *_spellings("next"))
    quota = Quota(
        name=headers.read(lambda text: printable(text) or None, "x-ratelimit-resource", "x-ratelimit-bucket")
        or "default",
        limit=headers.read(first_whole, *_spellings("limit")),
        remaining=headers.read(number, *_spellings("remaining")),
        wait=wait,
    )
    return [quota] if quota.says_something else []


def _spellings(suffix: str) -> list[str]:
    return [f"{prefix}-{suffix}" for prefix in _PREFIXES]
