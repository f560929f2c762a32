"""Starts spread evenly: the next one is `per / max` after the last start, however long jobs take."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from paceline.checks import check_count
from paceline.clock import NEVER, Micros
from paceline.durations import Duration, format_duration, parse_duration
from paceline.limits.delay import MICROSECOND, LastStart, RemembersLastStart


@dataclass(frozen=True, slots=True, init=False, repr=False)
class EvenlySpaced(RemembersLastStart):
    """`EvenlySpaced(60, per="1m")`: one start a second, no bursts. A job of cost 3 is followed by three intervals."""

    max: int
    per: timedelta
    per_us: Micros = field(compare=False)

    word = "spacing"

    def __init__(self, max: int, per: Duration) -> None:
        object.__setattr__(self, "max", check_count(max, option="max"))
        micros = parse_duration(per, option="per")
        object.__setattr__(self, "per", micros * MICROSECOND)
        object.__setattr__(self, "per_us", micros)

    def __repr__(self) -> str:
        return f"EvenlySpaced({self.max}, per={format_duration(self.per_us)!r})"

    def opens_at(self, state: LastStart, in_flight: int, cost: int) -> Micros:
        # A large cost may lie beyond the end of time.
        return 0 if state.at < 0 else min(-(-self._due(state) // self.max), NEVER)

    def charge(self, state: LastStart, cost: int, now: Micros) -> None:
        due = self._due(state)
        if state.at >= 0 and -(-due // self.max) == now:
            # On time: go on from the exact fraction, so that 7 starts per 60 s take 60 s and not 3 microseconds more.
            state.at, state.carry = divmod(due, self.max)
        else:
            if state.at >= 0 and due > now * self.max:
                # Forced in too early: whole intervals from here, and not before it would have opened anyway.
                cost = max(cost, -(-(due - now * self.max) // self.per_us))
            state.at = now if now > state.at else state.at
            state.carry = 0
        state.cost = cost

    def _due(self, state: LastStart) -> int:
        """The instant of the next start in units of 1 / max microseconds."""
        return state.at * self.max + state.carry + state.cost * self.per_us
