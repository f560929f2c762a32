"""From a response to a `Signal`: which of the times that it names counts, and whether it is a refusal."""

from __future__ import annotations

from .anthropic import anthropic_quotas
from .headers import Headers, HeaderSource, printable
from .openai import openai_quotas
from .quota import Quota
from .ratelimit_fields import ratelimit_quotas
from .retry_after import retry_after
from .shopify import shopify_quotas
from .signal import Signal
from .x_ratelimit import x_ratelimit_quotas

_FAMILIES = (ratelimit_quotas, x_ratelimit_quotas, openai_quotas, anthropic_quotas, shopify_quotas)
_OWN_WORDS = ("stripe-rate-limited-reason", "x-ratelimit-scope", "x-ratelimit-type")


def parse(status: int, headers: HeaderSource, *, now: float, cost: int = 1, maximum: float = 86400.0) -> Signal:
    """What a response says about limits. `now` is in epoch seconds; nonsense in a header is logged and ignored.

    >>> parse(429, {"Retry-After": "30"}, now=0.0).retry_after
    30.0
    """
    known = Headers.of(headers, now=now)
    quotas = [quota for family in _FAMILIES for quota in family(known) if quota.says_something]
    spent = _spent(quotas, cost)
    asked = _asked(status, known)
    limited = _is_limited(status, asked, quotas)
    if status < 400 and not spent and any(quota.remaining is not None for quota in quotas):
        wait = None
    elif asked is not None:
        wait = asked
    else:
        wait = _latest_reset(status, quotas, spent)
    return Signal(
        limited=limited,
        retry_after=None if wait is None else float(min(max(wait, 0.0), maximum)),
        dimensions=tuple(quota.at(now) for quota in quotas),
        reason=_reason(status, known, spent, limited=limited),
    )


def _asked(status: int, headers: Headers) -> float | None:
    # With these a service says when to poll one result, or to follow one redirect: nothing about its limits.
    if status == 202 or 300 <= status < 400:
        return None
    return retry_after(headers)


def _spent(quotas: list[Quota], cost: int) -> list[Quota]:
    # Where tokens are counted beside requests, a cost is in tokens: the job still makes one request.
    counts_tokens = any("token" in quota.name for quota in quotas)
    return [quota for quota in quotas if quota.is_spent(1 if counts_tokens and "request" in quota.name else cost)]


def _latest_reset(status: int, quotas: list[Quota], spent: list[Quota]) -> float | None:
    waits = [quota.wait for quota in spent if quota.wait is not None]
    if not waits and status == 429:
        # Something is used up and nobody said what. A reset of zero there is Azure's "unknown", no permission to hurry.
        waits = [
            quota.wait for quota in quotas if quota.remaining is None and quota.wait is not None and quota.wait > 0
        ]
    return max(waits, default=None)


def _is_limited(status: int, asked: float | None, quotas: list[Quota]) -> bool:
    match status:
        case 429 | 529:
            return True
        case 503:
            return asked is not None
        case 403:
            return asked is not None or any(quota.remaining == 0 for quota in quotas)
        case _:
            return False


def _reason(status: int, headers: Headers, spent: list[Quota], *, limited: bool) -> str | None:
    names = printable(", ".join(quota.name for quota in spent)) or None
    if not limited:
        return names
    own_word = headers.read(lambda text: printable(text) or None, *_OWN_WORDS)
    match status:
        case 529:
            return own_word or "overloaded"
        case 503:
            return own_word or names or "unavailable"
        case _:
            return own_word or names or "too many requests"
