"""aiolimiter: a leaky bucket in one event loop; it is asked whether it has capacity, then takes it."""

from __future__ import annotations

from aiolimiter import AsyncLimiter

from bench.limiters.interface import Ask, LimiterAdapter


class System(LimiterAdapter):
    label = "aiolimiter, leaky bucket"
    asynchronous = True

    async def empty(self, key: str, starts: int, seconds: int) -> Ask:
        limiter = AsyncLimiter(starts, seconds)

        async def ask() -> bool:
            if not limiter.has_capacity():
                return False
            await limiter.acquire()
            return True

        return ask
