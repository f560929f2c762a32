"""`paceline resume`: take a pause back."""

from __future__ import annotations

import click

from paceline.cli.pause import whom
from paceline.cli.running import with_store
from paceline.cli.target import Target


@click.command()
@click.argument("queue", default="default")
@click.option("-t", "--task", help="Only this task of the queue.")
@click.option("-g", "--group", help="Only this group of the queue.")
@with_store
async def resume(target: Target, queue: str, task: str | None, group: str | None) -> None:
    """Take the pause of QUEUE ("default" unless named), of one task or of one group back."""
    await target.desk.queue(queue).resume(task=task, group=group)
    click.echo(f"{whom(queue, task, group)} goes on")
