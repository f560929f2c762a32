"""What the bench asks of a job queue: `Adapter`. One file per system; all of them look the same to the suites."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

Payload = dict[str, Any]
Handle = Callable[..., None]
"""`handle(payload)`, from any thread; a worker outside Python says when it began: `handle(payload, began)`."""

PAYLOAD: Payload = {"to": "ada@example.org", "subject": "Hello", "number": 7}
"""What every job carries; its handler gets it decoded."""


class Lap(NamedTuple):
    """How long something took, by the wall and in processor time of the process that did it (all its threads)."""

    seconds: float
    cpu: float

    @classmethod
    def now(cls) -> Lap:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Lap) -> Lap:
        return Lap(self.seconds - start.seconds, self.cpu - start.cpu)


class Rate(NamedTuple):
    """So many starts in so many seconds."""

    starts: int
    seconds: float


class Adapter:
    """One job queue with one setting, on the store at `url`; `limit` is a rate that all workers keep together.

    A system implements `open`, `add`, `work` and `close`, `add_many` where it has a bulk way, and overrides the rest
    only where the work happens in a process of another language.
    """

    label: str
    """System and setting, for the tables."""
    bulk = False
    """It can add many at once."""
    concurrent = True
    """Its adds can overlap: they are coroutines that wait for the store."""

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        self.url = url
        self.setting = setting
        self.limit = limit

    async def open(self) -> None:
        """Connect, make tables, declare the task `noop`."""

    async def add(self, payload: Payload) -> None:
        """One job."""
        raise NotImplementedError

    async def add_many(self, payload: Payload, count: int) -> None:
        """So many at once."""
        raise NotImplementedError

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        """Run one worker, which calls `handle` with the payload of each job, until `stop` is set."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of the store."""

    async def starts(self) -> list[int]:
        """The starts as the system itself stamped them, in microseconds; none if it keeps no such log."""
        return []

    async def add_one_by_one(self, payload: Payload, count: int) -> None:
        for _ in range(count):
            await self.add(payload)

    async def add_together(self, payload: Payload, count: int, tasks: int) -> None:
        """Single adds from so many tasks at the same time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(self.add_one_by_one(payload, count // tasks))

    async def drain(self, jobs: int) -> Lap:
        """Run all jobs that wait, with one worker: from the first run of the handler to the last."""
        watch, stop = Stopwatch(jobs), asyncio.Event()
        working = asyncio.create_task(self.work(watch.handle, stop))
        done = asyncio.create_task(watch.done.wait())
        await asyncio.wait([working, done], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await working
        return watch.lap()


class Stopwatch:
    """The handler of a drain: its first call starts the time, the last one ends it; from any thread."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._started = self._ended = Lap(0, 0)

    def handle(self, payload: Payload) -> None:
        number = next(self._numbers)
        if number == 1:
            self._started = Lap.now()
        if number == self.jobs:
            self._ended = Lap.now()
            self._loop.call_soon_threadsafe(self.done.set)
        if payload != PAYLOAD:
            raise AssertionError(f"another payload came back: {payload!r}")

    def lap(self) -> Lap:
        """Asked when the worker has ended, so that a job that ran twice is seen."""
        runs = next(self._numbers) - 1
        if runs != self.jobs:
            raise AssertionError(f"{runs} runs of {self.jobs} jobs")
        return self._ended.since(self._started)
