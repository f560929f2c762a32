"""throttled-py: GCRA, its fastest, or its sliding window, a weighted counter; neither keeps every window."""

from __future__ import annotations

from datetime import timedelta

from throttled import MemoryStore, RedisStore, Throttled
from throttled.rate_limiter import per_duration

from bench.limiters.interface import Ask, LimiterAdapter

CAPACITY = 100_000
"""Keys its memory store may keep; its own default is fewer than a measurement has."""


class System(LimiterAdapter):
    async def open(self) -> None:
        self.label = f"throttled-py, {self.strategy}"
        on_redis = self.url.startswith("redis")
        self.store = RedisStore(server=self.url) if on_redis else MemoryStore(options={"MAX_SIZE": CAPACITY})

    async def empty(self, key: str, starts: int, seconds: int) -> Ask:
        quota = per_duration(timedelta(seconds=seconds), starts, burst=starts)
        limit = Throttled(key=key, using=self.strategy, quota=quota, store=self.store).limit
        return lambda: not limit().limited
