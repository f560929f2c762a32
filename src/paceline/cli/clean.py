"""`paceline clean`: remove jobs that ended long ago."""

from __future__ import annotations

import click

from paceline.cli.moving import move_many, queue_option, yes_option
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.durations import parse_duration
from paceline.job import JobState

STATES = [str(each) for each in JobState if each not in (JobState.ACTIVE, JobState.WAITING_CHILDREN)]


@click.command()
@click.argument("state", type=click.Choice(STATES))
@click.option("--older-than", default="0s", show_default=True, help="Only those in that state for longer than this.")
@queue_option
@yes_option
@with_store
async def clean(target: Target, state: str, older_than: str, queue: tuple[str, ...], yes: bool) -> None:
    """Remove jobs in STATE, such as completed, failed or cancelled."""
    parse_duration(older_than, option="older_than", zero=True)

    async def act(name: str) -> int:
        return await target.desk.queue(name).clean(state, older_than)

    await move_many(target.store, queue, JobState(state), act, verb="remove", done=("removed", "removed"), yes=yes)
