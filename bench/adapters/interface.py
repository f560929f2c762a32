"""What the runner asks of a system: a queue to drain, or a limiter to ask."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple, Protocol

WINDOW = 1_000
"""Every limiter is measured with this maximum, so that windows fill and slide alike."""


class Lap(NamedTuple):
    """How long something took, by the wall and in processor time of this process (all its threads)."""

    seconds: float
    cpu: float

    @classmethod
    def now(cls) -> Lap:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Lap) -> Lap:
        return Lap(self.seconds - start.seconds, self.cpu - start.cpu)


class QueueAdapter(Protocol):
    """A job queue with one worker and a handler that does nothing but `Stopwatch.tick()`."""

    name: str

    async def setup(self, jobs: int) -> None:
        """Enqueue the jobs; nothing runs yet."""

    async def drain(self) -> Lap:
        """Run them all; from the first start to the last finish."""
        ...


class LimiterAdapter(Protocol):
    """A limiter of `WINDOW` starts; each method times `n` questions and checks the answers."""

    name: str

    async def granted(self, n: int) -> Lap:
        """Granted: windows of an hour that fill from empty to full, one after the other."""
        ...

    async def sliding(self, n: int) -> Lap:
        """Granted: windows of a second that were full a second ago, so that each grant replaces an old one."""
        ...

    async def refused(self, n: int) -> Lap:
        """Refused: a window that is full."""
        ...


class Stopwatch:
    """What every handler calls: the first call starts the time, the last one ends it."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.count = 0
        self.started = self.ended = Lap(0, 0)
        self.done = asyncio.Event()
        self._lock = threading.Lock()

    def tick(self) -> None:
        self.count += 1
        if self.count == 1:
            self.started = Lap.now()
        if self.count == self.jobs:
            self.ended = Lap.now()
            self.done.set()

    def tick_from_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """The same for handlers in threads."""
        with self._lock:
            self.count += 1
            count = self.count
        if count == 1:
            self.started = Lap.now()
        if count == self.jobs:
            self.ended = Lap.now()
            loop.call_soon_threadsafe(self.done.set)

    def lap(self) -> Lap:
        """The time of all jobs; asked when the worker has ended, so that a job that ran twice is seen."""
        if self.count != self.jobs:
            raise AssertionError(f"{self.count} runs of {self.jobs} jobs")
        return self.ended.since(self.started)
