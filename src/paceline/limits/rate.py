"""At most `max` starts (or summed cost) in any window of length `per`: exact, no fixed border."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from paceline.checks import check_count
from paceline.clock import NEVER, Micros
from paceline.durations import Duration, format_duration, parse_duration, parse_rate
from paceline.errors import require
from paceline.limits.kind import Combines, Kind, Part

LONGEST_GUARD: Micros = 50_000
"""A guard that nobody chose is a fiftieth of the window, and no longer than this."""
_MICROSECOND = timedelta(microseconds=1)
_WINDOW_HINT = 'a count and a duration such as Rate(100, per="1m"), or text such as Rate("100/min")'


class Window:
    """The last starts of one key as a cumulative log: entry i says that `cums[i]` was spent up to `ats[i]`.

    Whatever is older than the last `max` is folded into `base` and `lost_at` (the youngest start that was folded).
    """

    __slots__ = ("ats", "base", "cums", "edits", "first", "lost_at", "total")

    def __init__(self) -> None:
        self.ats: list[Micros] = []
        self.cums: list[int] = []
        self.first = 0
        """No entry before this one can matter again: where the search for the one that must leave begins."""
        self.total = 0
        self.base = 0
        self.lost_at: Micros = 0
        self.edits = 0
        """Grows when entries changed other than by one more at the end, or by folding the oldest."""


def guard_of(kind: Kind, least_guard: Micros) -> Micros:
    """The shortest guard of a kind's rates, where a store chooses at least this; 0 where nothing is guarded."""
    guards = [part.in_force(least_guard).guard_us for part in kind.parts() if isinstance(part, Rate)]
    return min((guard for guard in guards if guard), default=0)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Rate(Combines):
    """At most `max` starts in any window of length `per`, counted where handlers begin.

    `Rate(120, per="1m")`, `Rate("100/min")`. `guard` is how much longer than `per` a start is counted: None, as much as
    the store needs; 0, stamps alone; more, also for the way from your handler to a service that counts arrivals.
    """

    max: int
    per: timedelta
    guard: timedelta | None
    window: Micros = field(compare=False)

    word = "rate"

    def __init__(self, max: int | str, per: Duration | None = None, guard: Duration | None = None) -> None:
        if isinstance(max, str):
            require(per is None, "per", per, "nothing beside a rate written as text")
            max, window = parse_rate(max)
        else:
            max = check_count(max, option="max")
            require(per is not None, "per", per, _WINDOW_HINT)
            window = parse_duration(per, option="per")  # type: ignore[arg-type]  # None was refused above
        margin = None if guard is None else parse_duration(guard, option="guard", zero=True)
        if margin is not None:
            require(margin <= window, "guard", guard, f"a duration from 0 to per={format_duration(window)!r}, or None")
        object.__setattr__(self, "max", max)
        object.__setattr__(self, "per", window * _MICROSECOND)
        object.__setattr__(self, "guard", None if margin is None else margin * _MICROSECOND)
        object.__setattr__(self, "window", window + (margin or 0))

    def __repr__(self) -> str:
        tail = ""
        if self.guard is not None:
            tail = f", guard={format_duration(self.guard_us)!r}" if self.guard_us else ", guard=0"
        return f"Rate({self.max}, per={format_duration(self.per // _MICROSECOND)!r}{tail})"

    @property
    def guard_us(self) -> Micros:
        """How much longer than `per` a start is counted; 0 where the store has not chosen yet."""
        return self.window - self.per // _MICROSECOND

    def in_force(self, least_guard: Micros) -> Rate:
        """This rate with the guard that a store chooses where none was given; 0: the store needs none."""
        if self.guard is not None or not least_guard:
            return self
        per = self.per // _MICROSECOND
        guarded: Rate = object.__new__(Rate)
        object.__setattr__(guarded, "max", self.max)
        object.__setattr__(guarded, "per", self.per)
        # No dearer than the shortest guard that works, however short the window is.
        guard = max(min(per // 50, LONGEST_GUARD), least_guard)
        object.__setattr__(guarded, "guard", guard * _MICROSECOND)
        object.__setattr__(guarded, "window", per + guard)
        return guarded

    def new_state(self) -> Window:
        return Window()

    def opens_at(self, state: Window, in_flight: int, cost: int) -> Micros:
        must_leave = state.total - self.max + cost
        if must_leave <= 0:
            return 0
        if must_leave > state.total:
            return NEVER
        if must_leave <= state.base:
            return state.lost_at + self.window
        cums, first = state.cums, state.first
        if cost > 1:
            return state.ats[bisect_left(cums, must_leave, first)] + self.window
        # What must leave only grows, so the next start finds its entry where this one did, or right behind it.
        while cums[first] < must_leave:
            first += 1
        state.first = first
        return state.ats[first] + self.window

    def charge(self, state: Window, cost: int, now: Micros) -> None:
        ats = state.ats
        state.total += cost
        if ats and ats[-1] >= now:
            state.cums[-1] = state.total
            return
        ats.append(now)
        state.cums.append(state.total)
        # Trimming every `max` starts keeps the cost of one start constant.
        if len(ats) > 2 * self.max + 32:
            self.trim(state)

    def trim(self, state: Window) -> None:
        """Fold what no decision under this `max` can ask for."""
        cut, state.base, state.lost_at = self._folded(state)
        del state.ats[:cut]
        del state.cums[:cut]
        state.first = max(state.first - cut, 0)

    def _folded(self, state: Window) -> tuple[int, int, Micros]:
        """How many entries that is, and `base` and `lost_at` without them."""
        cut = bisect_right(state.cums, state.total - self.max)
        return (cut, state.cums[cut - 1], state.ats[cut - 1]) if cut else (0, state.base, state.lost_at)

    def take_out(self, state: Window, cost: int, at: Micros) -> None:
        """Undo a charge, as long as it is known one by one; an entry that is empty then is gone."""
        # Folding first makes the outcome independent of when a store trims.
        self.trim(state)
        place = bisect_left(state.ats, at)
        if place == len(state.ats) or state.ats[place] != at:
            return
        cums = state.cums
        before = cums[place - 1] if place else state.base
        taken = min(cost, cums[place] - before)
        for later in range(place, len(cums)):
            cums[later] -= taken
        state.total -= taken
        state.edits += 1
        state.first = 0
        if cums[place] == before:
            del state.ats[place], cums[place]

    def put_in(self, state: Window, cost: int, at: Micros) -> None:
        """Count a start at an instant that may lie before others."""
        self.trim(state)
        ats, cums = state.ats, state.cums
        if not ats or at >= ats[-1]:
            self.charge(state, cost, at)
            return
        state.total += cost
        state.edits += 1
        state.first = 0
        if state.base and at <= state.lost_at:
            # As old as what is not known one by one.
            state.base += cost
            place = 0
        else:
            place = bisect_left(ats, at)
            if ats[place] != at:
                ats.insert(place, at)
                cums.insert(place, cums[place - 1] if place else state.base)
        for later in range(place, len(cums)):
            cums[later] += cost

    def used(self, state: Window, in_flight: int, now: Micros) -> int:
        gone = bisect_right(state.ats, now - self.window)
        if gone:
            return state.total - state.cums[gone - 1]
        known = state.total - state.base
        # What was folded is not known one by one: as long as it may count, the key shows as full.
        return min(state.total, max(known, self.max)) if state.base and state.lost_at > now - self.window else known

    @property
    def allowed(self) -> int:
        return self.max

    def fits(self, cost: int) -> bool:
        return cost <= self.max

    def forget_after(self, state: Window) -> Micros:
        return state.ats[-1] + self.window if state.ats else 0

    def adopt(self, old: Part, state: Any) -> Window:
        if isinstance(old, Rate):
            # Folding to what the old rule had to know makes the outcome independent of when a store trims.
            window = self.load(old.dump(state))
            self._delay(window, old.guard_us - self.guard_us)
            return window
        window = Window()
        last_at = old.last_start(state)
        if last_at >= 0:
            self.charge(window, old.last_cost(state), last_at)
        return window

    def _delay(self, state: Window, by: Micros) -> None:
        """Under a shorter guard, starts whose handlers may begin later than that count for as long as before."""
        if by > 0:
            state.ats = [at + by for at in state.ats]
            state.lost_at += by if state.base else 0

    def last_start(self, state: Window) -> Micros:
        return state.ats[-1] if state.ats else -1

    def last_cost(self, state: Window) -> int:
        return state.total - (state.cums[-2] if len(state.cums) > 1 else state.base)

    def dump(self, state: Window) -> list[int]:
        # The state stays as it is: who only looks dumps too, and a store would not write what a look has folded.
        cut, base, lost_at = self._folded(state)
        pairs = [number for pair in zip(state.ats[cut:], state.cums[cut:], strict=True) for number in pair]
        return [state.total, base, lost_at, *pairs]

    def load(self, numbers: list[int]) -> Window:
        state = Window()
        if numbers:
            state.total, state.base, state.lost_at = numbers[:3]
            state.ats = numbers[3::2]
            state.cums = numbers[4::2]
        return state
