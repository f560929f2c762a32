"""What the runner asks of a system: a queue to drain, a file to add to and to serve, or a limiter to ask."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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


PAYLOAD: dict[str, Any] = {"to": "ada@example.org", "subject": "Hello", "number": 7}
"""What every job in a file carries; its handler gets it decoded."""


class FileQueueAdapter(QueueAdapter, Protocol):
    """A job queue in a SQLite file, which it gets when it is made. A drain ends with the last acknowledgement."""

    async def add_singly(self, jobs: int) -> Lap:
        """Add jobs, one after the other."""
        ...

    async def serve(self, handle: Callable[[Any], None], stop: threading.Event) -> None:
        """In a worker process: call `handle` with the payload of each job until `stop` is set."""

    async def add(self, payload: Any) -> None:
        """In another process: add one job."""

    async def add_all(self, payload: Any, jobs: int) -> None:
        """In another process: add so many, the fastest way there is."""

    async def starts(self) -> list[int]:
        """The starts as the system itself stamped them, in microseconds; none if it keeps no such log."""
        ...

    async def close(self) -> None:
        """Let go of the file."""


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


class AckStopwatch:
    """The first run of a handler starts the time; the last acknowledgement that is written ends it."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.runs = self.acknowledged = 0
        self.started = self.ended = Lap(0, 0)
        self.done = threading.Event()

    def run(self, payload: Any) -> None:
        """What every handler calls."""
        self.runs += 1
        if self.runs == 1:
            self.started = Lap.now()
        if payload != PAYLOAD:
            raise AssertionError(f"another payload came back: {payload!r}")

    def acknowledge(self, jobs: int = 1) -> None:
        """So many more are written as done."""
        self.acknowledged += jobs
        if self.acknowledged >= self.jobs and not self.done.is_set():
            self.ended = Lap.now()
            self.done.set()

    def lap(self) -> Lap:
        """The time of all jobs; asked when the worker has ended, so that a job that ran twice is seen."""
        if (self.runs, self.acknowledged) != (self.jobs, self.jobs):
            raise AssertionError(f"{self.runs} runs and {self.acknowledged} acknowledgements of {self.jobs} jobs")
        return self.ended.since(self.started)
