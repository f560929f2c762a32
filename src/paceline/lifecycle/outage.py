"""A store that is away: one line when it is lost, growing pauses while it is, one line when it is back."""

from __future__ import annotations

import logging

from paceline.clock import SECOND, Micros
from paceline.durations import format_duration

FIRST_PAUSE: Micros = SECOND // 4
LONGEST_PAUSE: Micros = 2 * SECOND


class Outage:
    """What one caller knows of an outage; instants are those of the caller's clock."""

    def __init__(self, log: logging.Logger, lost: str, back: str) -> None:
        self._log = log
        self._lost = lost
        self._back = back
        self._since: Micros | None = None
        self._pause = FIRST_PAUSE

    @property
    def lasts(self) -> bool:
        """True between the first failure and the next success."""
        return self._since is not None

    def failed(self, error: BaseException, now: Micros) -> Micros:
        """A call failed; gives the instant of the next try."""
        if self._since is None:
            self._since = now
            self._pause = FIRST_PAUSE
            self._log.warning("%s: %s", self._lost, error)
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return now + pause

    def worked(self, now: Micros) -> None:
        """A call worked."""
        if self._since is None:
            return
        took = max(now - self._since, 0)
        self._since = None
        # In tenths of a second below ten, then in whole ones: nobody reads microseconds here.
        unit = SECOND // 10 if took < 10 * SECOND else SECOND
        self._log.warning("%s after %s", self._back, format_duration(max(took // unit * unit, unit)))
