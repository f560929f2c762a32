"""`anthropic-ratelimit-*` and `anthropic-priority-*`: one bucket per unit, resets in RFC 3339."""

from __future__ import annotations

import re

from .headers import Headers
from .quota import Quota
from .units import quotas_by_unit

_FIELD = re.compile("anthropic-(?:ratelimit-|(?=priority-))(?P<unit>.+)-(?P<part>limit|remaining|reset)")


def anthropic_quotas(headers: Headers) -> list[Quota]:
    """One quota per unit: `requests`, `input-tokens`, `priority-input-tokens` and so on."""
    return quotas_by_unit(headers, _FIELD)
