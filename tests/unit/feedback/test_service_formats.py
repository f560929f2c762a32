"""Every format of the research page, 3.2, that travels in headers: one row each."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from paceline.feedback import Dimension, parse

NOW = 1_790_510_400.0  # 2026-09-27T12:00:00Z


def row(
    name: str, *, limit: int | None = None, remaining: float | None = None, reset: float | None = None
) -> Dimension:
    return Dimension(name=name, limit=limit, remaining=remaining, reset_at=None if reset is None else NOW + reset)


DIMENSIONS: dict[str, tuple[Mapping[str, str], list[Dimension]]] = {
    "ietf": (
        {
            "RateLimit-Policy": '"burst";q=100;w=60,"daily";q=1000;w=86400',
            "RateLimit": '"burst";r=50;t=30, "daily";r=900',
        },
        [row("burst", limit=100, remaining=50, reset=30), row("daily", limit=1000, remaining=900)],
    ),
    "ietf with quota unit and partition key": (
        {
            "RateLimit-Policy": '"default";q=65535;qu="content-bytes";w=10;pk=:dHJpYWwxMjEzMjM=:',
            "RateLimit": '"default";r=999;pk=:dHJpYWwxMjEzMjM=:',
        },
        [row("default", limit=65535, remaining=999)],
    ),
    "ietf policy that the answer does not mention": (
        {"RateLimit-Policy": '"burst";q=100;w=60,"daily";q=1000', "RateLimit": '"burst";r=5'},
        [row("burst", limit=100, remaining=5), row("daily", limit=1000)],
    ),
    "ietf draft 7": (
        {"RateLimit": "limit=100, remaining=50, reset=30", "RateLimit-Policy": "100;w=60"},
        [row("default", limit=100, remaining=50, reset=30)],
    ),
    "ietf draft 7 with the limit in the policy": (
        {"RateLimit": "remaining=50, reset=30", "RateLimit-Policy": "100;w=60, 5000;w=3600"},
        [row("default", limit=100, remaining=50, reset=30)],
    ),
    "ietf before draft 7": (
        {
            "RateLimit-Limit": "10, 10;w=1, 1000;w=3600",
            "RateLimit-Remaining": "9",
            "RateLimit-Reset": "1",
        },
        [row("default", limit=10, remaining=9, reset=1)],
    ),
    "ietf, the newer field wins over the older ones": (
        {"RateLimit": '"now";r=3;t=4', "RateLimit-Remaining": "9", "RateLimit-Reset": "1"},
        [row("now", remaining=3, reset=4)],
    ),
    "gitlab": (
        {
            "RateLimit-Limit": "60",
            "RateLimit-Remaining": "0",
            "RateLimit-Reset": "1790510460",
            "RateLimit-ResetTime": "Sun, 27 Sep 2026 12:01:00 GMT",
        },
        [row("default", limit=60, remaining=0, reset=60)],
    ),
    "gitlab with the date only": (
        {"RateLimit-Remaining": "0", "RateLimit-ResetTime": "Sun, 27 Sep 2026 12:01:00 GMT"},
        [row("default", remaining=0, reset=60)],
    ),
    "github": (
        {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4987",
            "x-ratelimit-used": "13",
            "x-ratelimit-reset": "1790513000",
            "x-ratelimit-resource": "core",
        },
        [row("core", limit=5000, remaining=4987, reset=2600)],
    ),
    "twitter": (
        {"x-rate-limit-limit": "15", "x-rate-limit-remaining": "14", "x-rate-limit-reset": "1790510500"},
        [row("default", limit=15, remaining=14, reset=100)],
    ),
    "openai": (
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        [
            row("requests", limit=60, remaining=59, reset=1),
            row("tokens", limit=150000, remaining=149984, reset=360),
        ],
    ),
    "openai variants": (
        {
            "x-ratelimit-remaining-project-tokens": "5",
            "x-ratelimit-reset-project-tokens": "1h30m",
            "x-ratelimit-limit-tokens_usage_based": "100",
        },
        [row("project-tokens", remaining=5, reset=5400), row("tokens_usage_based", limit=100)],
    ),
    "groq": (
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.5s",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-tokens": "250ms",
        },
        [
            row("requests", limit=14400, remaining=14370, reset=179.5),
            row("tokens", remaining=17997, reset=0.25),
        ],
    ),
    "azure openai": (
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "64"},
        [row("tokens", remaining=0, reset=64)],
    ),
    "azure openai with the other spelling of one header": (
        {"x-ratelimit-remaining-tokens": "0", "x-rate-limit-reset-tokens": "55"},
        [row("tokens", remaining=0, reset=55)],
    ),
    "anthropic": (
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-09-27T12:05:00Z",
            "anthropic-ratelimit-input-tokens-limit": "40000",
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "2026-09-27T07:08:00-05:00",
            "anthropic-priority-output-tokens-remaining": "7",
        },
        [
            row("requests", limit=50, remaining=49, reset=300),
            row("input-tokens", limit=40000, remaining=0, reset=480),
            row("priority-output-tokens", remaining=7),
        ],
    ),
    "shopify": (
        {"X-Shopify-Shop-Api-Call-Limit": "32/40"},
        [row("shop", limit=40, remaining=8)],
    ),
    "shopify over its bucket": (
        {"X-Shopify-Shop-Api-Call-Limit": "41/40"},
        [row("shop", limit=40, remaining=0)],
    ),
    "discord": (
        {
            "X-RateLimit-Limit": "5",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "1790510999.123",
            "X-RateLimit-Reset-After": "1.5",
            "X-RateLimit-Bucket": "abcd1234",
        },
        [row("abcd1234", limit=5, remaining=0, reset=1.5)],
    ),
    "discord without the relative reset": (
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790510400.125"},
        [row("default", remaining=0, reset=0.125)],
    ),
    "envoy": (
        {"x-ratelimit-limit": '10, 10;w=1;name="foo"', "x-ratelimit-remaining": "9", "x-ratelimit-reset": "1"},
        [row("default", limit=10, remaining=9, reset=1)],
    ),
    "lemlist": (
        {
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "Sun Sep 27 2026 13:01:00 GMT+0100 (Central European Standard Time)",
        },
        [row("default", remaining=0, reset=60)],
    ),
    "akamai": (
        {"X-RateLimit-Limit": "40", "X-RateLimit-Remaining": "0", "X-RateLimit-Next": "2026-09-27T12:00:02.500Z"},
        [row("default", limit=40, remaining=0, reset=2.5)],
    ),
    "reddit": (
        {"X-Ratelimit-Remaining": "98.0", "X-Ratelimit-Used": "2", "X-Ratelimit-Reset": "300"},
        [row("default", remaining=98.0, reset=300)],
    ),
    "openrouter": (
        {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790510460000"},
        [row("default", limit=20, remaining=0, reset=60)],
    ),
}


@pytest.mark.parametrize("service", DIMENSIONS)
def test_the_dimensions_of_each_service_are_read(service: str) -> None:
    headers, expected = DIMENSIONS[service]

    assert list(parse(200, headers, now=NOW).dimensions) == expected


REFUSALS: dict[str, tuple[int, Mapping[str, str], float | None, str]] = {
    "rfc 9110 seconds": (429, {"Retry-After": "120"}, 120, "too many requests"),
    "rfc 9110 imf-fixdate": (429, {"Retry-After": "Sun, 27 Sep 2026 12:02:00 GMT"}, 120, "too many requests"),
    "rfc 9110 rfc 850 date": (429, {"Retry-After": "Sunday, 27-Sep-26 12:02:00 GMT"}, 120, "too many requests"),
    "rfc 9110 asctime date": (429, {"Retry-After": "Sun Sep 27 12:02:00 2026"}, 120, "too many requests"),
    "rfc 9110 unavailable": (503, {"Retry-After": "120"}, 120, "unavailable"),
    "ietf": (429, {"RateLimit": '"burst";r=0;t=9, "daily";r=40;t=5000'}, 9, "burst"),
    "github primary": (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1790513000"}, 2600, "default"),
    "github secondary": (403, {"retry-after": "60", "x-ratelimit-remaining": "4000"}, 60, "too many requests"),
    "github secondary without a time": (
        429,
        {"x-ratelimit-remaining": "4000", "x-ratelimit-reset": "1790513000"},
        None,
        "too many requests",
    ),
    "openai": (429, {"retry-after-ms": "1534", "retry-after": "2"}, 1.534, "too many requests"),
    "azure openai, nothing known": (
        429,
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"},
        None,
        "too many requests",
    ),
    "azure openai, only a reset": (
        429,
        {"x-rate-limit-reset-tokens": "55", "x-ratelimit-remaining-requests": "12", "x-ratelimit-type": "tokens"},
        55,
        "tokens",
    ),
    "anthropic quota": (429, {"retry-after": "7", "anthropic-ratelimit-tokens-remaining": "0"}, 7, "tokens"),
    "anthropic overload": (529, {}, None, "overloaded"),
    "anthropic plan without a unit": (
        429,
        {"anthropic-ratelimit-unified-7d-reset": "1790610400"},
        None,
        "too many requests",
    ),
    "stripe": (429, {"Stripe-Rate-Limited-Reason": "global-concurrency"}, None, "global-concurrency"),
    "shopify": (429, {"Retry-After": "2.0", "X-Shopify-Shop-Api-Call-Limit": "40/40"}, 2, "shop"),
    "slack": (429, {"Retry-After": "30"}, 30, "too many requests"),
    "discord": (
        429,
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "64.57", "X-RateLimit-Scope": "shared"},
        64.57,
        "shared",
    ),
    "mailerlite": (429, {"X-RateLimit-Retry-After": "12"}, 12, "too many requests"),
}


@pytest.mark.parametrize("service", REFUSALS)
def test_the_refusal_of_each_service_is_understood(service: str) -> None:
    status, headers, retry_after, reason = REFUSALS[service]

    signal = parse(status, headers, now=NOW)

    assert signal.limited
    assert signal.retry_after == retry_after
    assert signal.reason == reason
