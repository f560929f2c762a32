"""Dramatiq on Redis: one worker with threads; middleware that a no-op does not need is off.

With a limit: its own window limiter in the handler, and a retry for each refusal, soon.
"""

from __future__ import annotations

import asyncio
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries
from dramatiq.rate_limits import WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

from bench.adapters.interface import Adapter, Handle, Payload, Rate


class System(Adapter):
    """The setting is the number of threads."""

    concurrent = False

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.label = f"Dramatiq, {setting} threads"
        self.handle: Handle | None = None

    async def open(self) -> None:
        retries = [] if self.limit is None else [Retries(max_retries=1_000, min_backoff=100, max_backoff=1_000)]
        self.broker = RedisBroker(url=self.url, middleware=retries)
        dramatiq.set_broker(self.broker)
        limiter = None if self.limit is None else _limiter(self.url, self.limit)

        def noop(payload: Payload) -> None:
            assert self.handle is not None
            if limiter is None:
                self.handle(payload)
            else:
                with limiter.acquire():
                    self.handle(payload)

        self.noop: Any = dramatiq.actor(noop, broker=self.broker)

    async def add(self, payload: Payload) -> None:
        self.noop.send(payload)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        self.handle = handle
        worker = dramatiq.Worker(self.broker, worker_timeout=100, worker_threads=int(self.setting))
        worker.start()
        await stop.wait()
        await asyncio.to_thread(worker.stop)

    async def close(self) -> None:
        self.broker.close()


def _limiter(url: str, limit: Rate) -> WindowRateLimiter:
    return WindowRateLimiter(RedisBackend(url=url), "bench", limit=limit.starts, window=round(limit.seconds))
