"""How long an event loop kept somebody waiting who was ready."""

from __future__ import annotations

import asyncio
import time

PAUSE = 0.001


class Stalls:
    """A task beside others that wants to run every millisecond; in memory of nothing but the longest delay."""

    def __init__(self) -> None:
        self._longest = self._busiest = 0.0
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(PAUSE)
            self._longest = max(self._longest, time.perf_counter() - began - PAUSE)
            self._busiest = max(self._busiest, time.thread_time() - used)

    def end(self) -> tuple[float, float]:
        """The longest delay in milliseconds, and the most processor time that the loop's thread used in one."""
        if self._task is not None:
            self._task.cancel()
        return self._longest * 1e3, self._busiest * 1e3
