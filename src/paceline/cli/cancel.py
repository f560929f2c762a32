"""`paceline cancel`: cancel jobs, waiting or running."""

from __future__ import annotations

import click

from paceline.cli.moving import move_many, queue_option, yes_option
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.job import ACTIVE, MOVES, JobState, Move

STATES = sorted(str(each) for each in MOVES[Move.CANCEL] - {JobState.WAITING_CHILDREN})


@click.command()
@click.argument("job", nargs=-1)
@click.option("-s", "--state", type=click.Choice(STATES), default=None, help="All jobs of this state.")
@queue_option
@yes_option
@with_store
async def cancel(target: Target, job: tuple[str, ...], state: str | None, queue: tuple[str, ...], yes: bool) -> None:
    """Cancel JOBs: at once while they wait; running handlers are stopped."""
    if bool(job) == (state is not None):
        raise click.UsageError("name jobs, or --state waiting for all of them")
    if job:
        running = {each.id for each in await target.store.get(job) if each.state is ACTIVE}
        await target.store.move(job, Move.CANCEL)
        for each in job:
            click.echo(f"{each} {'is told to stop' if each in running else 'is cancelled'}")
        return
    wanted = JobState(str(state))

    async def act(name: str) -> int:
        return await target.store.move_all(name, wanted, Move.CANCEL)

    await move_many(target.store, queue, wanted, act, verb="cancel", done=("is cancelled", "are cancelled"), yes=yes)
