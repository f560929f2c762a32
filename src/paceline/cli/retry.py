"""`paceline retry`: run finished jobs once more."""

from __future__ import annotations

import click

from paceline.cli.moving import move_many, queue_option, yes_option
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.job import FINISHED, JobState, Move


@click.command()
@click.argument("job", nargs=-1)
@click.option(
    "-s",
    "--state",
    type=click.Choice(sorted(str(each) for each in FINISHED)),
    default=None,
    help="All jobs of this state instead of single ones, such as failed.",
)
@queue_option
@yes_option
@with_store
async def retry(target: Target, job: tuple[str, ...], state: str | None, queue: tuple[str, ...], yes: bool) -> None:
    """Run JOBs once more, with all their attempts; or all of one state: paceline retry --state failed."""
    if bool(job) == (state is not None):
        raise click.UsageError("name jobs, or --state failed for all of them")
    if job:
        await target.store.move(job, Move.RETRY)
        click.echo(f"{len(job)} {'job waits' if len(job) == 1 else 'jobs wait'} again")
        return
    wanted = JobState(str(state))

    async def act(name: str) -> int:
        return await target.store.move_all(name, wanted, Move.RETRY)

    await move_many(target.store, queue, wanted, act, verb="retry", done=("waits again", "wait again"), yes=yes)
