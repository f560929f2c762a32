"""The server's time as this process knows it: every answer of the server corrects it, no clock of ours decides."""

from __future__ import annotations

import time

from paceline.clock import Micros, SystemClock

FRESH = 10_000_000
"""So long the best estimate of the server's time is kept before a worse one may replace it."""


class ServerClock(SystemClock):
    """Never ahead of the server: who sleeps until an instant wakes up on time or a round trip late, not early."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at: Micros = -FRESH

    def heard(self, instant: Micros) -> None:
        """The server said what time it was, a moment ago."""
        here = time.monotonic_ns() // 1000
        offset = instant - here
        if offset > self._offset or here - self._told_at > FRESH:
            self._offset = offset
            self._told_at = here
