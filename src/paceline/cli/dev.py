"""`paceline dev`: a worker that starts anew when a file changes."""

from __future__ import annotations

import click

from paceline.cli.worker import start


@click.command()
@click.argument("app", required=False)
@click.option("-c", "--concurrency", default=10, show_default=True, type=click.IntRange(1), help="Jobs at once.")
@click.option("-q", "--queue", "queues", multiple=True, help="Only these queues; those of the tasks unless given.")
def dev(app: str | None, **options: object) -> None:
    """Run the jobs of APP and start anew when a Python file below this folder changes."""
    start(app, {**options, "reload": True, "grace": "5s", "log_level": "info"})
