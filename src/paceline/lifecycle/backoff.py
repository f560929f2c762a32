"""How long until the next attempt. Pure: the jitter comes from outside."""

from __future__ import annotations

from paceline.clock import Micros
from paceline.job import Backoff


def delay_before_attempt(backoff: Backoff | None, attempts_made: int, jitter: float) -> Micros:
    """The wait after the n-th failed attempt; `jitter` is a number in [0, 1)."""
    if backoff is None:
        return 0
    if backoff.delays:
        return backoff.delays[min(attempts_made, len(backoff.delays)) - 1]
    # Beyond 2^40 every base is above every cap: no need for huge numbers.
    delay = min(backoff.base << min(attempts_made - 1, 40), backoff.cap)
    return max(0, delay + int(delay * backoff.jitter * (2 * jitter - 1)))
