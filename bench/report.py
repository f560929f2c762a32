"""From measurements to words: medians, spreads, ratios and a plain table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

Numbers = Sequence[float]


def spread(values: Numbers) -> float:
    """(max - min) / median, as a share."""
    return (max(values) - min(values)) / median(values)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *numbers = row
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        return "  ".join([first.ljust(widths[0]), *cells])

    return "\n".join([line(head), line(["-" * width for width in widths]), *(line(row) for row in rows)])


def verdict(what: str, ours: Numbers, theirs: Numbers, target: float | None, *, at_most: bool = False) -> str:
    """The ratio of the medians decides; that of the best rounds and the range over the rounds tell how sure it is."""
    ratio = median(ours) / median(theirs)
    pick = min if at_most else max
    best = pick(ours) / pick(theirs)
    rounds = [a / b for a, b in zip(ours, theirs, strict=True)]
    line = f"{what}: {ratio:.2f}x, best {best:.2f}x, rounds {min(rounds):.2f} to {max(rounds):.2f}"
    if target is None:
        return line
    yes = ratio <= target if at_most else ratio >= target
    return f"{line}; target {'at most ' if at_most else ''}{target:g}x: {reached(yes)}"


def reached(yes: bool) -> str:
    return "reached" if yes else "not reached"
