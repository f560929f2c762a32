"""A dimension while it is being read: its reset is still a wait, so that no precision is lost to the epoch."""

from __future__ import annotations

from dataclasses import dataclass

from .signal import Dimension

# The last second that a datetime can show: callers print what they are given.
_END_OF_TIME = 253_402_300_799.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One dimension; `wait` is in seconds from now and negative when the reset has passed."""

    name: str
    limit: int | None = None
    remaining: float | int | None = None
    wait: float | None = None

    @property
    def says_something(self) -> bool:
        return not (self.limit is None and self.remaining is None and self.wait is None)

    def is_spent(self, cost: int) -> bool:
        return self.remaining is not None and (self.remaining <= 0 or self.remaining < cost)

    def at(self, now: float) -> Dimension:
        reset_at = None if self.wait is None else min(now + self.wait, _END_OF_TIME)
        return Dimension(name=self.name, limit=self.limit, remaining=self.remaining, reset_at=reset_at)
