"""`paceline dev`: a worker that starts anew when a file changes."""

from __future__ import annotations

import click

from paceline.cli.worker import one_of, start, worker_options


@click.command()
@worker_options
def dev(app: str | None, named: str | None, **options: object) -> None:
    """Run the jobs of APP and start anew when a Python file below this folder changes."""
    start(one_of(app, named), {**options, "reload": True, "grace": "5s", "log_level": "info"})
