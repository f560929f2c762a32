"""The server's time as this process knows it: what answers said, carried on by the local monotonic clock."""

from __future__ import annotations

import time

from paceline.clock import Micros, SystemClock

REFRESH: Micros = 10_000_000
"""An estimate this old gives way to the next answer, so that two clocks that drift apart do not stay apart."""


class ServerClock(SystemClock):
    """Never ahead of the server: an answer is old when it is heard, so who waits on this wakes late, not early."""

    def __init__(self) -> None:
        super().__init__()
        self._heard_at = -REFRESH
        self._latest: Micros = 0

    def heard(self, server_now: Micros) -> None:
        """An answer says what time it was at the server."""
        local = time.monotonic_ns() // 1000
        offset = server_now - local
        if offset > self._offset or local - self._heard_at > REFRESH:
            self._offset = offset
            self._heard_at = local

    def now(self) -> Micros:
        self._latest = max(self._latest, super().now())
        return self._latest
