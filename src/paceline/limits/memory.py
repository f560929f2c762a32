"""What a key was limited by before: starts go on being logged, so that a kind that comes back has forgotten none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from paceline.clock import Micros
from paceline.limits.delay import Delay
from paceline.limits.kind import Part
from paceline.limits.rate import Rate, Window
from paceline.limits.spacing import EvenlySpaced

Cell = tuple[Part, Any]
"""A simple kind, and the state it keeps for one key."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Remembered(Rate):
    """A log that is charged and never asked: as deep as the largest `max`, and kept as long as the longest window."""

    spacing: Micros
    """The longest interval between starts of cost 1."""

    word = "memory"

    def __init__(self, most: int, window: Micros, spacing: Micros) -> None:
        object.__setattr__(self, "max", most)
        # Without a guard: what is remembered has been delayed by the guards it was counted under.
        object.__setattr__(self, "per", timedelta(microseconds=window))
        object.__setattr__(self, "guard", timedelta())
        object.__setattr__(self, "window", window)
        object.__setattr__(self, "spacing", spacing)

    def forget_after(self, state: Window) -> Micros:
        return state.ats[-1] + max(self.window, self.spacing * self.last_cost(state)) if state.ats else 0


def remember(parts: Sequence[Part], others: Sequence[Part], may_be_forgotten: bool) -> Remembered | None:
    """The log to keep beside these kinds for others, which ruled before or rule again when an override ends.

    None where the kinds themselves remember as much.
    """
    logs = any(isinstance(part, Rate) for part in parts)
    if not others or (logs and not may_be_forgotten):
        return None
    most, window, spacing = _reach(others)
    _, own_window, own_spacing = _reach(parts)
    gaps = any(isinstance(part, Delay) for part in parts) and spacing == 0
    known = logs or (most <= 1 and (gaps or any(isinstance(part, EvenlySpaced) for part in parts)))
    if known and (not may_be_forgotten or (window <= own_window and spacing <= own_spacing)):
        return None
    return Remembered(most, window, spacing)


def go_on(part: Part, old: Sequence[Cell]) -> Any:
    """The state to go on with under another kind: of what is remembered, that which remembers the most."""
    same = [cell for cell in old if type(cell[0]) is type(part)]
    logs = [cell for cell in old if isinstance(cell[0], Rate)]
    candidates = logs if isinstance(part, Rate) and logs else same or logs or old
    if not candidates:
        return part.new_state()
    was, state = max(candidates, key=lambda cell: (cell[0].allowed, cell[0].last_start(cell[1])))
    return part.adopt(was, state)


def _reach(parts: Sequence[Part]) -> tuple[int, Micros, Micros]:
    """How many starts these kinds must know, for how long, and the longest interval between two of them."""
    rates = [part for part in parts if isinstance(part, Rate)]
    windows = [part.window for part in rates] + [part.gap_us for part in parts if isinstance(part, Delay)]
    spacings = [part.spacing for part in parts if isinstance(part, Remembered)]
    spacings += [-(-part.per_us // part.max) for part in parts if isinstance(part, EvenlySpaced)]
    return max([1, *(part.max for part in rates)]), max(windows, default=0), max(spacings, default=0)
