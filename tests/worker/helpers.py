"""Small words for tests of workers: run them in the background, and read the log of starts as seconds."""

from __future__ import annotations

import asyncio
import time as real
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from paceline import Job, Queue, Start, Worker
from paceline.testing import VirtualTime

ORIGIN = datetime(2030, 1, 1, tzinfo=UTC)
"""Where virtual time begins."""


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    """Workers run in the background; at the end what still runs is handed back. No wake-up may ever get lost."""
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            await asyncio.gather(*(worker.stop(grace=0) for worker in workers))
    assert [worker.insurance_wakeups for worker in workers] == [0] * len(workers)


async def eventually(true: Callable[[], Awaitable[object]], within: float = 10) -> None:
    """Look again and again in real time, for what happens in another process."""
    deadline = real.monotonic() + within
    for _ in iter(lambda: real.monotonic() < deadline, False):
        if await true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{true} did not become true within {within} s")


async def soon(task: asyncio.Future[Any], time: VirtualTime) -> Any:
    """What a task gives that needs no time to pass."""
    await time.settle()
    assert task.done(), f"{task!r} still waits for something"
    return task.result()


def called(value: object) -> str:
    """The name of a test's parameter: short, and the same in every process."""
    return repr(value).split(" at 0x")[0][:30]


async def nothing(job: Any) -> None:
    """The plainest handler."""


def takes(time: VirtualTime, duration: str) -> Callable[[Any], Awaitable[None]]:
    """A handler that takes a while in virtual time."""

    async def handler(job: Any) -> None:
        await time.sleep(duration)

    return handler


def refuses_first(*verdicts: BaseException | type[BaseException]) -> Callable[[Any], Awaitable[str]]:
    """A handler that raises these, one after the other, and then does its work."""
    left = list(verdicts)

    async def handler(job: Any) -> str:
        if left:
            raise left.pop(0)
        return "done"

    return handler


class Running:
    """A handler that takes a while and knows how many of it ran at the same time, in all and by group or task."""

    def __init__(self, time: VirtualTime, duration: str = "1s", by: Callable[[Job[Any]], Any] = lambda job: None):
        self._time = time
        self._duration = duration
        self._by = by
        self.now = 0
        self.most = 0
        self._each: dict[Any, int] = {}
        self.most_of: dict[Any, int] = {}

    async def __call__(self, job: Job[Any]) -> None:
        key = self._by(job)
        self.now += 1
        self._each[key] = self._each.get(key, 0) + 1
        self.most = max(self.most, self.now)
        self.most_of[key] = max(self.most_of.get(key, 0), self._each[key])
        try:
            await self._time.sleep(self._duration)
        finally:
            self.now -= 1
            self._each[key] -= 1


def after(when: datetime | None) -> float:
    """Seconds since virtual time began."""
    assert when is not None
    return (when - ORIGIN) / timedelta(seconds=1)


def seconds(starts: Iterable[Start]) -> list[float]:
    """The instants of starts in seconds since virtual time began."""
    return [after(start.at) for start in starts]


async def started(queue: Queue) -> list[float]:
    """When the jobs of a queue started, in seconds since virtual time began, as the store stamped them."""
    return seconds(await queue.starts())


def fullest_window(starts: Sequence[Start], per: float) -> int:
    """The most starts in any half-open window of this length: the fullest one begins with a start."""
    times = sorted(start.at for start in starts)
    length = timedelta(seconds=per)
    return max((bisect_left(times, at + length) - place for place, at in enumerate(times)), default=0)


async def add(queue: Queue, number: int, task: str = "work", **options: Any) -> list[Job[Any]]:
    """Add as many jobs; their data are 0, 1, 2 …"""
    return await queue.add_many([(task, place, options) for place in range(number)])


async def states(jobs: Iterable[Job[Any]]) -> list[str]:
    """The states of jobs as the store has them now."""
    return [str((await job.refresh()).state) for job in jobs]
