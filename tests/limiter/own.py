"""A limiter of a user's own, for tests: it allows so many at a time and writes down what it is asked."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from paceline.testing import VirtualTime

SIX = (
    "can_proceed",
    "record_job_start",
    "record_job_completion",
    "get_next_available_time",
    "set_next_available_time",
    "clear",
)


class OwnLimiter:
    """At most `most` at the same time, nothing before `opens`, and every answer takes a moment."""

    def __init__(self, time: VirtualTime | RealTime, most: int = 1_000_000) -> None:
        self.time = time
        self.most = most
        self.opens = time.now()
        self.running = self.highest = 0
        self.calls: list[str] = []

    async def can_proceed(self) -> bool:
        self.calls.append("can_proceed")
        free = self.running < self.most and self.time.now() >= self.opens
        await asyncio.sleep(0)
        return free

    async def record_job_start(self) -> None:
        self.calls.append("record_job_start")
        await asyncio.sleep(0)
        self.running += 1
        self.highest = max(self.highest, self.running)

    async def record_job_completion(self) -> None:
        self.calls.append("record_job_completion")
        self.running -= 1

    async def get_next_available_time(self) -> datetime:
        self.calls.append("get_next_available_time")
        return max(self.opens, self.time.now())

    async def set_next_available_time(self, when: datetime) -> None:
        self.calls.append("set_next_available_time")
        self.opens = max(self.opens, when)

    async def clear(self) -> None:
        self.calls.append("clear")
        self.opens = self.time.now()


class Failing(OwnLimiter):
    """One of its methods raises, as often as wanted."""

    def __init__(self, time: Any, method: str, problem: type[BaseException], times: int = 1_000_000) -> None:
        super().__init__(time)
        works, left = getattr(self, method), [times]

        async def fails(*values: Any) -> Any:
            if left[0] > 0:
                left[0] -= 1
                raise problem("no answer today")
            return await works(*values)

        setattr(self, method, fails)


class RealTime:
    """The clock of an own limiter in real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)
