"""Paceline's limiter without jobs: `await limiter.try_acquire()`."""

from __future__ import annotations

from bench.limiters.interface import Ask, LimiterAdapter
from paceline import Limiter, Rate, open_store


class System(LimiterAdapter):
    label = "ours, try_acquire"
    asynchronous = True

    async def open(self) -> None:
        self.store = open_store(self.url)

    async def empty(self, key: str, starts: int, seconds: int) -> Ask:
        limiter = Limiter(key, Rate(starts, per=seconds), store=self.store)
        await limiter.can_proceed()  # declares it
        return limiter.try_acquire

    async def close(self) -> None:
        await self.store.close()
