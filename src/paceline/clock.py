"""Time as integer microseconds, and the clock every part waits on; a store owns exactly one."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias

from paceline.errors import require

Micros: TypeAlias = int
SECOND = 1_000_000
NEVER: Micros = 1 << 62
"""Later than every instant: only an event (a finish, a change) can help, not the passing of time."""

_monotonic_ns = time.monotonic_ns
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What stores, workers and limiters ask for the time and sleep on."""

    @property
    def virtual(self) -> bool:
        """True when a test moves this clock: nothing may then wait on real time."""
        ...

    def now(self) -> Micros:
        """Microseconds since 1970; never goes backwards."""
        ...

    async def wait(self, event: asyncio.Event, until: Micros) -> bool:
        """Wait for the event, at most until the instant; True when the event was set."""
        ...

    def handler_begins(self) -> None:
        """A worker calls a handler: a clock that a test moves waits for it."""

    def handler_ended(self) -> None:
        """A handler ended."""


class SystemClock:
    """Wall time anchored once and carried by the monotonic clock, so that clock steps change nothing."""

    virtual = False

    def __init__(self) -> None:
        self._offset = (time.time_ns() - time.monotonic_ns()) // 1000

    def now(self) -> Micros:
        return _monotonic_ns() // 1000 + self._offset

    def handler_begins(self) -> None:
        return None

    def handler_ended(self) -> None:
        return None

    async def wait(self, event: asyncio.Event, until: Micros) -> bool:
        if event.is_set():
            return True
        if until >= NEVER:
            await event.wait()
            return True
        # Event loops count whole milliseconds: rounding up makes a wake-up late by one at most, never early.
        delay = math.ceil(max(until - self.now(), 0) / 1000) / 1000
        try:
            async with asyncio.timeout(delay):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


async def sleep_until(clock: Clock, until: Micros) -> None:
    """Sleep on the given clock."""
    never = asyncio.Event()
    while clock.now() < until:
        await clock.wait(never, until)


def to_datetime(at: Micros) -> datetime:
    """An aware UTC datetime for an instant."""
    return _EPOCH + timedelta(microseconds=at)


def from_datetime(when: datetime, *, option: str) -> Micros:
    """The instant of an aware datetime; a naive one is refused, because its zone can only be guessed."""
    require(isinstance(when, datetime), option, when, "a datetime with a time zone")
    require(when.tzinfo is not None, option, when, "a datetime with a time zone, e.g. datetime.now(UTC)")
    return (when - _EPOCH) // timedelta(microseconds=1)
