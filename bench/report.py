"""From measurements to words: medians, spreads and a plain table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

Runs = Sequence[dict[str, Any]]


class Table(NamedTuple):
    """A head and rows of text; the first column to the left, numbers to the right."""

    head: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        widths = [max(len(row[i]) for row in (self.head, *self.rows)) for i in range(len(self.head))]

        def line(row: Sequence[str]) -> str:
            first, *numbers = row
            cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
            return "  ".join([first.ljust(widths[0]), *cells]).rstrip()

        return "\n".join([line(self.head), line(["─" * width for width in widths]), *(line(row) for row in self.rows)])

    def markdown(self) -> str:
        def line(row: Sequence[str]) -> str:
            return f"| {' | '.join(row)} |"

        marks = ["---", *("---:" for _ in self.head[1:])]
        return "\n".join([line(self.head), line(marks), *(line(row) for row in self.rows)])


def values(runs: Runs, column: str) -> list[float]:
    return [run[column] for run in runs if run.get(column) is not None]


def middle(runs: Runs, column: str) -> float | None:
    found = values(runs, column)
    return median(found) if found else None


def figure(runs: Runs, column: str) -> str:
    """The median, with as many digits as mean something."""
    return short(middle(runs, column))


def short(number: float | None) -> str:
    if number is None:
        return "–"
    if abs(number) >= 100 or number == round(number):
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def spread(numbers: Sequence[float]) -> float:
    """(max - min) / median, as a share."""
    return (max(numbers) - min(numbers)) / median(numbers)


def spread_of(runs: Runs, column: str) -> str:
    found = values(runs, column)
    return f"{spread(found):.0%}" if found else "–"


def laps(runs: Runs, bed: str, slots: str, column: str) -> list[float]:
    """Of a store of one size in the suite `flat`."""
    return [lap[column] for run in runs for lap in run["beds"][bed][slots]]
