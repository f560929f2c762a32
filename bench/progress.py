"""A bar on a terminal; silence elsewhere, except for what went wrong."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """`with Progress(12) as progress: progress.say("what now"); progress.step()`."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True)
        columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        text = TextColumn("{task.description}")
        shown = self._console.is_terminal
        self._bar = Bar(*columns, text, console=self._console, transient=True, disable=not shown)
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, what: str) -> None:
        self._bar.update(self._task, description=what)

    def step(self) -> None:
        self._bar.advance(self._task)

    def note(self, text: str) -> None:
        """Something that must be seen, on a terminal or not."""
        self._console.print(text, markup=False, highlight=False)
