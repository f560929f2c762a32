"""Huey on SQLite: one consumer with threads, no results, nothing periodic.

With `fsync=False` (synchronous OFF), which favours it. Its own default leaves SQLite's: FULL. It takes a job out of the
file before it runs, so that there is no acknowledgement: the end of the handler counts as one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huey import SqliteHuey

from adapters.interface import PAYLOAD, AckStopwatch, Lap

THREADS = (1, 4)
"""Both are drained; the faster one counts."""
POLL = 0.001
"""Seconds between two looks at an empty queue, for a low latency; its own default is 0.1, growing to 10."""


class HueySqlite:
    """`limit` is (starts, seconds): its own rate limit, a fixed window whose refusals are rescheduled."""

    def __init__(
        self, file: Path, threads: int, limit: tuple[int, int] | None = None, *, fsync: bool | None = False
    ) -> None:
        self.name = (
            f"Huey, {threads} thread{'s' if threads > 1 else ''}, synchronous {'OFF' if fsync is False else 'FULL'}"
        )
        self.threads = threads
        self.huey = SqliteHuey("bench", filename=str(file), results=False, fsync=fsync)
        self.handle: Callable[[Any], None] = _nothing

        def noop(payload: Any) -> None:
            self.handle(payload)

        self.noop = self.huey.task()(noop if limit is None else self.huey.rate_limit("bench", *limit)(noop))

    async def setup(self, jobs: int) -> None:
        self.watch = watch = AckStopwatch(jobs)
        one_at_a_time = threading.Lock()

        def run(payload: Any) -> None:
            with one_at_a_time:
                watch.run(payload)
                watch.acknowledge()

        self.handle = run
        await self.add_all(PAYLOAD, jobs)

    async def drain(self) -> Lap:
        await self._consume(self.watch.done)
        assert len(self.huey) == 0, len(self.huey)
        return self.watch.lap()

    async def add_singly(self, jobs: int) -> Lap:
        start = Lap.now()
        for _ in range(jobs):
            self.noop(PAYLOAD)
        lap = Lap.now().since(start)
        assert len(self.huey) == jobs, len(self.huey)
        return lap

    async def serve(self, handle: Callable[[Any], None], stop: threading.Event) -> None:
        self.handle = handle
        await self._consume(stop)

    async def add(self, payload: Any) -> None:
        self.noop(payload)

    async def add_all(self, payload: Any, jobs: int) -> None:
        for _ in range(jobs):
            self.noop(payload)

    async def starts(self) -> list[int]:
        return []

    async def close(self) -> None:
        self.huey.storage.close()

    async def _consume(self, until: threading.Event) -> None:
        consumer = self.huey.create_consumer(
            workers=self.threads, worker_type="thread", periodic=False, initial_delay=POLL, max_delay=POLL
        )
        consumer.start()
        await asyncio.to_thread(until.wait)
        consumer.stop(graceful=True)


def _nothing(payload: Any) -> None:
    """Nobody serves here."""
