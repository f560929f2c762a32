"""Time as integer microseconds, and the clock every part waits on; a store owns exactly one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias

from paceline.errors import ConfigError, require
from paceline.text import describe, show

Micros: TypeAlias = int
SECOND = 1_000_000
NEVER: Micros = 1 << 62
"""Later than every instant: only an event (a finish, a change) can help, not the passing of time."""

_monotonic_ns = time.monotonic_ns
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_END: Micros = (_LAST - _EPOCH) // timedelta(microseconds=1)


def since_boot() -> Micros:
    """Microseconds that no change of the wall clock touches; they go on while the machine sleeps."""
    nanoseconds = time.monotonic_ns() if _BOOT_CLOCK is None else time.clock_gettime_ns(_BOOT_CLOCK)
    return nanoseconds // 1000


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
        # Event loops count whole milliseconds: rounding up makes a wake-up late by one or two, never early.
        delay = math.ceil(max(until - self.now(), 0) / 1000) / 1000
        try:
            async with asyncio.timeout(delay):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True


EARLY: Micros = 1_200
"""Event loops round a wait up to whole milliseconds, and wake a little after that."""
ROUNDED: Micros = 1_000
"""A longer wait may be rounded up twice: 18 * 1e-3 is 0.018000000000000002, which the system makes 19 milliseconds."""


async def wait_exactly(clock: Clock, event: asyncio.Event, until: Micros) -> bool:
    """As `clock.wait`, but awake at the instant itself: wake a little early, and let others run until it has come.

    It costs about a millisecond of processor time for each instant, so it is for those who are one in a process.
    """
    if clock.virtual or until >= NEVER:
        return await clock.wait(event, until)
    while (ahead := until - EARLY - clock.now()) > 0 and not event.is_set():
        most = ahead - ROUNDED if ahead > 3 * ROUNDED else ahead
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most / SECOND):
                await event.wait()
    while not event.is_set() and clock.now() < until:  # noqa: ASYNC110  # no event comes at the instant itself
        await asyncio.sleep(0)
    return event.is_set()


async def sleep_until(clock: Clock, until: Micros) -> None:
    """Sleep on the given clock."""
    never = asyncio.Event()
    while clock.now() < until:
        await clock.wait(never, until)


def to_datetime(at: Micros) -> datetime:
    """An aware UTC datetime for an instant; one that no datetime can show is the last that can be shown."""
    return _LAST if at >= _END else _EPOCH + timedelta(microseconds=at)


def from_datetime(when: datetime, *, option: str) -> Micros:
    """The instant of an aware datetime; a naive one is refused, because its zone can only be guessed."""
    require(isinstance(when, datetime), option, when, "a datetime with a time zone")
    try:
        offset = when.utcoffset()
    except Exception as error:  # a zone is the user's own code
        why = f"{option}={show(when)} is wrong: its time zone gives no offset: {describe(error)}"
        raise ConfigError(why, option=option, value=when) from error
    # A zone that gives no offset leaves the time as naive as no zone.
    require(offset is not None, option, when, "a datetime with a time zone, e.g. datetime.now(UTC)")
    return (when - _EPOCH) // timedelta(microseconds=1)
