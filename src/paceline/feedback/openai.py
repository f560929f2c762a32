"""`x-ratelimit-{limit,remaining,reset}-{requests,tokens,...}`: OpenAI, Azure, Groq and those compatible with them."""

from __future__ import annotations

import re

from .headers import Headers
from .quota import Quota
from .units import quotas_by_unit

# Azure has also written x-rate-limit-reset-tokens.
_FIELD = re.compile("x-rate-?limit-(?P<part>limit|remaining|reset)-(?P<unit>.+)")


def openai_quotas(headers: Headers) -> list[Quota]:
    """One quota per unit; a reset is the time until the bucket is full again, so an upper bound of the wait."""
    return quotas_by_unit(headers, _FIELD)
