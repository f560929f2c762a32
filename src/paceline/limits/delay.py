"""At least `gap` between two starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from paceline.clock import Micros
from paceline.durations import Duration, format_duration, parse_duration
from paceline.limits.kind import Combines, Part

MICROSECOND = timedelta(microseconds=1)


class LastStart:
    """When the last start was, and how far its spacing is ahead of whole microseconds."""

    __slots__ = ("at", "carry", "cost")

    def __init__(self, at: Micros = -1, carry: int = 0, cost: int = 1) -> None:
        self.at = at
        self.carry = carry
        self.cost = cost


class RemembersLastStart(Combines, ABC):
    """What `Delay` and `EvenlySpaced` share: their state is the last start."""

    __slots__ = ()

    @property
    def allowed(self) -> int:
        return 1

    def new_state(self) -> LastStart:
        return LastStart()

    def fits(self, cost: int) -> bool:
        return True

    @abstractmethod
    def opens_at(self, state: LastStart, in_flight: int, cost: int) -> Micros:
        """Each kind has its own."""

    def used(self, state: LastStart, in_flight: int, now: Micros) -> int:
        return 1 if self.opens_at(state, in_flight, 1) > now else 0

    def forget_after(self, state: LastStart) -> Micros:
        # Not at that very instant: a start that is exactly on time goes on from the fraction.
        return self.opens_at(state, 0, 1) + 1 if state.at >= 0 else 0

    def last_start(self, state: LastStart) -> Micros:
        # A start with a fraction was rounded up to the next microsecond.
        return state.at + 1 if state.carry else state.at

    def adopt(self, old: Part, state: Any) -> LastStart:
        return LastStart(old.last_start(state), 0, old.last_cost(state))

    def last_cost(self, state: LastStart) -> int:
        return state.cost

    def dump(self, state: LastStart) -> list[int]:
        return [state.at, state.carry, state.cost]

    def load(self, numbers: list[int]) -> LastStart:
        return LastStart(*numbers)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Delay(RemembersLastStart):
    """At least `gap` between two starts: `Delay("50ms")`. A job counts as one whatever it costs."""

    gap: timedelta
    gap_us: Micros = field(compare=False)

    word = "delay"

    def __init__(self, gap: Duration = "50ms") -> None:
        micros = parse_duration(gap, option="gap")
        object.__setattr__(self, "gap", micros * MICROSECOND)
        object.__setattr__(self, "gap_us", micros)

    def __repr__(self) -> str:
        return f"Delay({format_duration(self.gap_us)!r})"

    def opens_at(self, state: LastStart, in_flight: int, cost: int) -> Micros:
        return 0 if state.at < 0 else state.at + self.gap_us

    def charge(self, state: LastStart, cost: int, now: Micros) -> None:
        state.at = max(now, state.at)
        state.carry = 0
        state.cost = 1
