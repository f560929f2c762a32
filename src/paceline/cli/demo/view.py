"""The live view of the demo: bars for jobs and limits on a terminal, a line per run elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

import click

from paceline.cli.demo.runs import Progress
from paceline.cli.output import bar, glyph, width
from paceline.clock import SECOND
from paceline.limits.explain import Usage


class View:
    """`with View(...) as view: view.show("with limits", progress)`."""

    def __init__(self, jobs: int, most: int, per: float) -> None:
        self._jobs = jobs
        self._most = most
        self._per = per
        self._shown: dict[str, Progress] = {}
        self._live: Any = None

    def __enter__(self) -> View:
        click.echo(
            f"{self._jobs} webhooks of four tenants; the service allows {self._most} in any {self._per:g} seconds."
        )
        if sys.stdout.isatty():
            try:
                from rich.console import Console
                from rich.live import Live
            except ModuleNotFoundError:
                return self
            self._live = Live(console=Console(highlight=False), refresh_per_second=10)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, title: str, progress: Progress) -> None:
        """Draw how far the run is."""
        self._shown[title] = progress
        if self._live is not None:
            from rich.text import Text

            lines = [line for each, seen in self._shown.items() for line in self._lines(each, seen)]
            self._live.update(Text.from_ansi("\n".join(lines)), refresh=True)

    def done(self, title: str, progress: Progress) -> None:
        """The run is over."""
        self.show(title, progress)
        if self._live is None:
            click.echo(self._lines(title, progress)[0])

    def _lines(self, title: str, progress: Progress) -> list[str]:
        counts = progress.counts
        done, failed = counts.get("completed", 0), counts.get("failed", 0)
        size = max(10, min(40, width() - 60))
        full, lost = round(size * done / self._jobs), round(size * failed / self._jobs)
        drawn = click.style(glyph("█", "#") * full, fg="green") + click.style(glyph("█", "x") * lost, fg="red")
        rest = glyph("░", ".") * (size - full - lost)
        head = click.style(f"{title:<15}", bold=True)
        seconds = progress.seconds if progress.over else time.monotonic() - progress.began
        numbers = f"{done}/{self._jobs} delivered, {failed} failed, {progress.refused} x 429, {seconds:.1f} s"
        lines = [f"{head} {drawn}{rest} {numbers}"]
        if self._live is None:
            return [click.unstyle(lines[0])] if not sys.stdout.isatty() else lines
        for name, usage in progress.limits.items():
            full_of = f"{bar(usage.used, usage.allowed or 1, size)} {usage.used}/{usage.allowed} in the window"
            lines.append(f"  {name:<13} {full_of}, {usage.waiting} wait{_next(usage)}")
        if progress.limits:
            lines += [
                f"  {name:<13} {bar(progress.delivered.get(name, 0), wanted, size)} "
                f"{progress.delivered.get(name, 0)}/{wanted}"
                for name, wanted in progress.wanted.items()
            ]
        return lines


def _next(usage: Usage) -> str:
    wait = (usage.opens_at - usage.now) / SECOND
    return f", next start in {wait:.1f} s" if wait > 0 and usage.waiting else ""
