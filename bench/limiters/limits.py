"""`limits`: plain hits of its moving window, which is exact, or of its fixed one, which is not."""

from __future__ import annotations

from functools import partial

from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from bench.limiters.interface import Ask, LimiterAdapter

STRATEGIES = {"moving": MovingWindowRateLimiter, "fixed": FixedWindowRateLimiter}


class System(LimiterAdapter):
    async def open(self) -> None:
        self.label = f"limits, {self.strategy} window"
        self.limiter = STRATEGIES[self.strategy](storage_from_string(self.url))

    async def empty(self, key: str, starts: int, seconds: int) -> Ask:
        item = RateLimitItemPerSecond(starts, seconds)
        return partial(self.limiter.hit, item, key)

    async def forget(self, key: str, starts: int, seconds: int) -> None:
        # Its memory storage looks at all live keys every 10 ms.
        self.limiter.clear(RateLimitItemPerSecond(starts, seconds), key)
