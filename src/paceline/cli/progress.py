"""Progress of long work: a bar on a terminal, nothing where nobody looks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

EVERY = 0.2
"""Seconds between two looks at how far something is."""

Advance = Callable[[int], None]


def shows_bars() -> bool:
    """True where a person looks and rich is installed."""
    if not sys.stderr.isatty():
        return False
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Advance]:
    """`with progress_bar("adding", 5000) as advance: advance(100)`."""
    if not shows_bars() or total <= 0:
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda number: progress.update(task, advance=number)


@asynccontextmanager
async def watched(title: str, total: int, left: Callable[[], Awaitable[int]]) -> AsyncIterator[None]:
    """A bar beside one long call of the store: how many are left is asked now and then."""
    if not shows_bars() or total <= 0:
        yield
        return
    with progress_bar(title, total) as advance:
        done = 0

        async def look() -> None:
            nonlocal done
            while True:
                await asyncio.sleep(EVERY)
                seen = total - await left()
                advance(max(seen - done, 0))
                done = max(seen, done)

        looking = asyncio.create_task(look())
        try:
            yield
            advance(total - done)
        finally:
            looking.cancel()
