"""One line when the server is lost and one when it is found again, however many callers notice."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger("paceline.store")


class Outage:
    """Whether the server that this process knew is away, and since when."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._was_there = False
        self._since: float | None = None
        self._lock = threading.Lock()

    def begins(self, error: Exception) -> None:
        """A connection broke, or there is none; a server that was never reached is the caller's error alone."""
        with self._lock:
            if self._since is not None or not self._was_there:
                return
            self._since = time.monotonic()
        log.warning("lost the connection to %s (%s); retrying", self._shown, error)

    def ends(self) -> None:
        """The server answers."""
        with self._lock:
            since, self._since, self._was_there = self._since, None, True
        if since is not None:
            log.info("connected to %s again after %.1fs", self._shown, time.monotonic() - since)
