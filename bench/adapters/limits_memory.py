"""`limits`: MovingWindowRateLimiter.hit on its MemoryStorage."""

from __future__ import annotations

import asyncio

from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from adapters.interface import WINDOW, Lap


class LimitsMemory:
    """Plain calls: no coroutine is put around a hit."""

    name = "limits, moving window"

    async def granted(self, n: int) -> Lap:
        # One key that is cleared: its storage sweeps all live keys every 10 ms, so many keys would slow it down.
        limiter, item = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerHour(WINDOW)
        seconds = cpu = 0.0
        for _ in range(n // WINDOW):
            lap = _grants(limiter, item, "bench")
            seconds, cpu = seconds + lap.seconds, cpu + lap.cpu
            limiter.clear(item, "bench")
        return Lap(seconds, cpu)

    async def sliding(self, n: int) -> Lap:
        limiter, item = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerSecond(WINDOW)
        keys = [f"bench-{i}" for i in range(n // WINDOW)]
        for key in keys:
            _grants(limiter, item, key)
        await asyncio.sleep(1.01)
        start = Lap.now()
        for key in keys:
            _grants(limiter, item, key)
        return Lap.now().since(start)

    async def refused(self, n: int) -> Lap:
        limiter, item = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerHour(WINDOW)
        _grants(limiter, item, "bench")
        granted = 0
        start = Lap.now()
        for _ in range(n):
            if limiter.hit(item, "bench"):
                granted += 1
        lap = Lap.now().since(start)
        assert granted == 0, granted
        return lap


def _grants(limiter: MovingWindowRateLimiter, item: RateLimitItem, key: str) -> Lap:
    """Fill one window."""
    granted = 0
    start = Lap.now()
    for _ in range(WINDOW):
        if limiter.hit(item, key):
            granted += 1
    lap = Lap.now().since(start)
    assert granted == WINDOW, granted
    return lap
