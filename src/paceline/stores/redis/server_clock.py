"""The server's time as this process knows it: what answers said, carried on by the local monotonic clock."""

from __future__ import annotations

import asyncio
import math
import time

from paceline.clock import NEVER, Micros

_monotonic_ns = time.monotonic_ns
REFRESH: Micros = 10_000_000
"""An estimate this old gives way to the next answer, so that two clocks that drift apart do not stay apart."""


class ServerClock:
    """Never ahead of the server: an answer is old when it is heard, so who waits on this wakes late, not early."""

    virtual = False

    def __init__(self) -> None:
        self._offset = (time.time_ns() - _monotonic_ns()) // 1000
        self._heard_at = -REFRESH
        self._latest: Micros = 0

    def heard(self, server_now: Micros) -> None:
        """An answer says what time it was at the server."""
        local = _monotonic_ns() // 1000
        offset = server_now - local
        if offset > self._offset or local - self._heard_at > REFRESH:
            self._offset = offset
            self._heard_at = local

    def now(self) -> Micros:
        now = _monotonic_ns() // 1000 + self._offset
        if now > self._latest:
            self._latest = now
        return self._latest

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
