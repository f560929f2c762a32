"""What retry, cancel and clean share: which jobs, how many, and a question before it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from paceline.cli.jobs import queue_names
from paceline.cli.output import counted
from paceline.cli.progress import watched
from paceline.cli.running import confirm
from paceline.job import JobState
from paceline.stores.interface import Store

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
queue_option = click.option("-q", "--queue", multiple=True, help="Only of these queues; all unless given.")


async def move_many(
    store: Store,
    queues: tuple[str, ...],
    state: JobState,
    act: Callable[[str], Awaitable[int]],
    *,
    verb: str,
    done: tuple[str, str],
    yes: bool,
) -> None:
    """The same for all jobs of one state: say how many, ask, do it with a bar, say how many it were."""
    names = list(queues) or await queue_names(store)
    number = {name: (await store.counts(name))[state] for name in names}
    total = sum(number.values())
    if not total:
        click.echo(f"no {state} jobs in {', '.join(names) or 'any queue'}")
        return
    where = ", ".join(f"{count} in {name}" for name, count in number.items() if count)
    confirm(f"{verb} up to {counted(total, f'{state} job', f'{state} jobs')} ({where})?", yes)
    changed = 0
    for name, count in number.items():
        if count:

            async def left(name: str = name) -> int:
                return (await store.counts(name))[state]

            async with watched(f"{name}: {verb}", count, left):
                changed += await act(name)
    click.echo(f"{counted(changed)} {done[changed != 1]}")
