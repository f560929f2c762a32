"""pyrate-limiter: its sliding log, which is exact; it is asked without waiting."""

from __future__ import annotations

from functools import partial

import redis
from pyrate_limiter import InMemoryBucket, Limiter, Rate, RedisBucket

from bench.limiters.interface import Ask, LimiterAdapter


class System(LimiterAdapter):
    label = "pyrate-limiter, sliding log"

    async def open(self) -> None:
        self.client = redis.Redis.from_url(self.url) if self.url.startswith("redis") else None

    async def empty(self, key: str, starts: int, seconds: int) -> Ask:
        rates = [Rate(starts, seconds * 1_000)]
        bucket = InMemoryBucket(rates) if self.client is None else RedisBucket.init(rates, self.client, key)
        return partial(Limiter(bucket).try_acquire, "bench", blocking=False)
