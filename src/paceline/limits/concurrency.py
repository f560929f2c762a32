"""At most `max` running at the same time: live leases are counted, so a slot can neither leak nor be freed twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.checks import check_count
from paceline.clock import NEVER, Micros
from paceline.limits.kind import Combines, Part


@dataclass(frozen=True, slots=True)
class Concurrency(Combines):
    """At most `max` running at the same time: `Concurrency(5)`. A job counts as one whatever it costs."""

    max: int

    word = "concurrency"

    def __post_init__(self) -> None:
        object.__setattr__(self, "max", check_count(self.max, option="max"))

    def __repr__(self) -> str:
        return f"Concurrency({self.max})"

    def new_state(self) -> None:
        return None

    def opens_at(self, state: Any, in_flight: int, cost: int) -> Micros:
        return 0 if in_flight < self.max else NEVER

    def charge(self, state: Any, cost: int, now: Micros) -> None:
        return None

    def used(self, state: Any, in_flight: int, now: Micros) -> int:
        return in_flight

    @property
    def allowed(self) -> int:
        return self.max

    def fits(self, cost: int) -> bool:
        return True

    def forget_after(self, state: Any) -> Micros:
        return 0

    def last_start(self, state: Any) -> Micros:
        return -1

    def last_cost(self, state: Any) -> int:
        return 1

    def adopt(self, old: Part, state: Any) -> None:
        return None

    def dump(self, state: Any) -> list[int]:
        return []

    def load(self, numbers: list[int]) -> None:
        return None
