"""`paceline pause`: start nothing of a queue, a task or a group until `paceline resume`."""

from __future__ import annotations

import shlex

import click

from paceline.cli.running import with_store
from paceline.cli.target import Target


@click.command()
@click.argument("queue", default="default")
@click.option("-t", "--task", help="Only this task of the queue.")
@click.option("-g", "--group", help="Only this group of the queue.")
@with_store
async def pause(target: Target, queue: str, task: str | None, group: str | None) -> None:
    """Start nothing of QUEUE ("default" unless named), of one task or of one group; what runs goes on."""
    await target.desk.queue(queue).pause(task=task, group=group)
    click.echo(f"{whom(queue, task, group)} is paused; go on with `{_back(queue, task, group)}`")


def _back(queue: str, task: str | None, group: str | None) -> str:
    """The command that takes exactly this pause back."""
    words = ["paceline", "resume", *([] if queue == "default" else [queue])]
    words += [] if task is None else ["--task", task]
    return shlex.join(words if group is None else [*words, "--group", group])


def whom(queue: str, task: str | None, group: str | None) -> str:
    """What a pause is about, in words."""
    if task is not None:
        return f"task {task!r} of queue {queue!r}"
    return f"queue {queue!r}" if group is None else f"group {group!r} of queue {queue!r}"
