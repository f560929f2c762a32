"""A clock for tests that set the time themselves."""

from __future__ import annotations

import asyncio

START = 1_000_000_000 * 1_000_000


class HandClock:
    """Time that moves only when `at` is set."""

    virtual = True

    def __init__(self, at: int = START) -> None:
        self.at = at

    def now(self) -> int:
        return self.at

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        return event.is_set()
