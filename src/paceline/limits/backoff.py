"""How long a limit is held after an outside refusal that names no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from paceline.clock import Micros
from paceline.durations import Duration, format_duration, parse_duration
from paceline.errors import require


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Backoff:
    """Exponential with jitter: the k-th refusal in a row holds for d + uniform(0, d), d = initial·multiplier^(k−1)."""

    initial: timedelta
    multiplier: float
    maximum: timedelta
    initial_us: Micros = field(compare=False)
    maximum_us: Micros = field(compare=False)

    def __init__(self, initial: Duration = "1s", multiplier: float = 2, maximum: Duration = "10m") -> None:
        first = parse_duration(initial, option="initial")
        number = isinstance(multiplier, int | float) and not isinstance(multiplier, bool)
        require(number and 1 < multiplier < float("inf"), "multiplier", multiplier, "a number above 1")
        last = parse_duration(maximum, option="maximum")
        require(last > first, "maximum", maximum, f"a duration longer than initial ({format_duration(first)})")
        object.__setattr__(self, "initial", timedelta(microseconds=first))
        object.__setattr__(self, "multiplier", multiplier if type(multiplier) is int else float(multiplier))
        object.__setattr__(self, "maximum", timedelta(microseconds=last))
        object.__setattr__(self, "initial_us", first)
        object.__setattr__(self, "maximum_us", last)

    def __repr__(self) -> str:
        initial, maximum = format_duration(self.initial_us), format_duration(self.maximum_us)
        return f"Backoff(initial={initial!r}, multiplier={self.multiplier!r}, maximum={maximum!r})"

    def hold_for(self, refusals: int, jitter: float) -> Micros:
        """How long to hold after the k-th refusal in a row; `jitter` is a number in [0, 1) from outside."""
        try:
            delay = min(int(self.initial_us * self.multiplier ** (refusals - 1)), self.maximum_us)
        except OverflowError:
            delay = self.maximum_us
        return delay + int(delay * jitter)
