"""`X-Shopify-Shop-Api-Call-Limit: 32/40`: calls in the leaky bucket, and its size."""

from __future__ import annotations

from .headers import Headers
from .numbers import number
from .quota import Quota


def shopify_quotas(headers: Headers) -> list[Quota]:
    """At most one quota; Shopify names no reset, and Retry-After when the bucket is full."""
    quota = headers.read(_used_of_limit, "x-shopify-shop-api-call-limit")
    return [] if quota is None else [quota]


def _used_of_limit(text: str) -> Quota | None:
    used_text, _, limit_text = text.partition("/")
    used, limit = number(used_text), number(limit_text)
    if used is None or limit is None:
        return None
    return Quota(name="shop", limit=int(limit), remaining=max(0, limit - used))
