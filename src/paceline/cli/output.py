"""What commands print: tables that fit the terminal, bars, times for people, and JSON for programs."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from paceline.clock import Micros
from paceline.durations import format_duration
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited

NARROW = 8
"""No column is made narrower than this."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=_plain), indent=2).decode())


def clean(text: object) -> str:
    """Text of others on one line and without control characters: a name must not drive the terminal."""
    return "".join(each if each.isprintable() else " " for each in str(text))


def without_secrets(text: str) -> str:
    """Text without the passwords of the addresses in it: an error may quote one, and so may a line of code."""
    return re.sub(r"(://[^\s:/@]*):\S+@", r"\1:***@", re.sub(r"(password=)[^&\s'\"]+", r"\1***", text))


def counted(number: int, one: str = "job", many: str = "jobs") -> str:
    """A number and its noun: "1 job", "2 jobs"."""
    return f"{number} {one if number == 1 else many}"


def glyph(fancy: str, plain: str) -> str:
    """A character, or what stands for it where the output cannot show it."""
    # The real output: a live view puts a stand-in before it that knows no encoding.
    encoding = getattr(sys.__stdout__ if sys.stdout is None else sys.stdout, "encoding", None)
    encoding = encoding or getattr(sys.__stdout__, "encoding", None) or "ascii"
    try:
        fancy.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return plain
    return fancy


def width() -> int:
    """How many columns there are; plenty where nobody looks."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 10_000


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Collection[str] = (),
    give: Collection[str] = (),
    keep: Collection[str] = (),
    drop: Sequence[str] = (),
) -> list[str]:
    """Aligned lines. Columns in `right` are numbers.

    Where space is short, those in `give` are cut first, those in `keep` never (half an id is none), and those in
    `drop` go, one after the other, when cutting is not enough.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    if _total(headers, cells) > width():
        # Where space is short, a column that says nothing goes first.
        kept = [place for place in range(len(headers)) if any(row[place] for row in cells)]
        headers, cells = [headers[place] for place in kept], [[row[place] for place in kept] for row in cells]
    widths = [max([len(header), *(len(row[place]) for row in cells)]) for place, header in enumerate(headers)]
    over = sum(widths) + 2 * (len(widths) - 1) - width()
    order = sorted(range(len(widths)), key=lambda place: (headers[place] not in give, -widths[place]))
    for place in order:
        if over > 0 and headers[place] not in keep:
            less = min(over, max(widths[place] - NARROW, 0))
            widths[place], over = widths[place] - less, over - less
    gone = next((name for name in drop if name in headers), None)
    if over > 0 and gone is not None:
        kept = [place for place, header in enumerate(headers) if header != gone]
        fewer = [[row[place] for place in kept] for row in cells]
        return table([headers[place] for place in kept], fewer, right=right, give=give, keep=keep, drop=drop)
    lines = []
    for number, row in enumerate([list(headers), *cells]):
        parts = [
            _fit(cell, size).rjust(size) if header in right else _fit(cell, size).ljust(size)
            for cell, size, header in zip(row, widths, headers, strict=True)
        ]
        line = _fit("  ".join(parts).rstrip(), width())
        lines.append(click.style(line, dim=True) if number == 0 else line)
    return lines


def bar(used: float, allowed: float, size: int = 10) -> str:
    """How full something is."""
    full = min(size, round(size * used / allowed)) if allowed else size
    return glyph("█", "#") * full + glyph("░", ".") * (size - full)


def short(micros: Micros) -> str:
    """A duration for people: three digits are enough."""
    for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000)):
        if micros >= 2 * size:
            return f"{micros / size:.3g}{unit}"
    if micros >= 1_000_000:
        return f"{micros / 1_000_000:.3g}s"
    return f"{max(micros // 1000, 1)}ms" if micros > 0 else "0s"


def since(then: Micros | None, now: Micros) -> str:
    """How long ago."""
    return "" if then is None else f"{short(max(now - then, 0))} ago"


def ahead(then: Micros | None, now: Micros) -> str:
    """In how long."""
    if then is None:
        return ""
    return "now" if then <= now else f"in {short(then - now)}"


def in_words(kind: Kind) -> str:
    """A kind as one says it: "120 per 1m, 5 at once"."""
    return ", ".join(_WORDS[type(part)](part) for part in kind.parts()) or "no limit"


def _per(duration: Any) -> str:
    return format_duration(int(duration.total_seconds() * 1_000_000))


_WORDS: dict[type, Callable[[Any], str]] = {
    Rate: lambda kind: f"{kind.max} per {_per(kind.per)}",
    Concurrency: lambda kind: f"{kind.max} at once",
    Delay: lambda kind: f"{_per(kind.gap)} apart",
    EvenlySpaced: lambda kind: f"{kind.max} per {_per(kind.per)} evenly",
    Unlimited: lambda kind: "no limit",
    AllOf: lambda kind: in_words(kind),
}


def _total(headers: Sequence[str], cells: list[list[str]]) -> int:
    widths = [max([len(header), *(len(row[place]) for row in cells)]) for place, header in enumerate(headers)]
    return sum(widths) + 2 * (len(widths) - 1)


def fit(text: str) -> str:
    """A line cut to the terminal."""
    return _fit(text, width())


def _fit(cell: str, size: int) -> str:
    return cell if len(cell) <= size else cell[: size - 1] + glyph("…", "~")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise NotImplementedError(f"no JSON for {type(value)}")
