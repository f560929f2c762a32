"""What limits promise, said as plainly as possible: every start is kept for ever, every window is counted anew.

Shares no code with the kernel, and is as slow as it looks.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

Start = tuple[int, int]
"""When, and at what cost."""


def spent(starts: list[Start], window: int, now: int) -> int:
    """The cost of all starts in the half-open window (now - window, now]: one exactly a window ago is out."""
    return sum(cost for at, cost in starts if now - window < at <= now)


def fullest_window(starts: list[Start], window: int) -> int:
    """The most that any window of this length holds. The fullest one can be moved until it ends at a start."""
    return max((spent(starts, window, end) for end, _ in starts), default=0)


def rate_opens_at(starts: list[Start], most: int, window: int, cost: int, now: int) -> int:
    """The first instant from now on at which one more start of this cost fits; it can only be when one leaves."""
    instants = sorted({now, *(at + window for at, _ in starts if at + window > now)})
    return next(at for at in instants if spent(starts, window, at) + cost <= most)


def gap_opens_at(starts: list[Start], gap: int, now: int) -> int:
    """The first instant from now on that is a gap after the last start."""
    return max([now, *(at + gap for at, _ in starts)])


class Spacing:
    """Even spacing in exact fractions: a start that is on time is followed as if it were not rounded up."""

    def __init__(self, most: int, per: int) -> None:
        self.interval = Fraction(per, most)
        self.next = Fraction(0)

    def opens_at(self, now: int) -> int:
        return max(now, ceil(self.next))

    def start(self, now: int, cost: int) -> None:
        on_time = ceil(self.next) == now
        self.next = (self.next if on_time else Fraction(now)) + cost * self.interval
