"""`paceline jobs`: a page of jobs."""

from __future__ import annotations

from typing import Any

import click

from paceline import codec
from paceline.cli.output import ahead, json_option, print_json, since, table
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.clock import to_datetime
from paceline.job import DELAYED, JobRecord, JobState
from paceline.stores.interface import Filter, Store


@click.command()
@click.option("-q", "--queue", multiple=True, help="Only of these queues.")
@click.option("-s", "--state", type=click.Choice([str(each) for each in JobState]), help="Only in this state.")
@click.option("-t", "--task", help="Only of this task.")
@click.option("-g", "--group", help="Only of this group.")
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1), help="At most so many per queue.")
@click.option("--after", metavar="JOB", help="Those after this one: the next page (with one --queue).")
@json_option
@with_store
async def jobs(
    target: Target,
    queue: tuple[str, ...],
    state: str | None,
    task: str | None,
    group: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """List jobs in the order they were added."""
    if after is not None and len(queue) != 1:
        raise click.UsageError("--after needs one --queue")
    found: list[JobRecord] = []
    for name in queue or await queue_names(target.store):
        wanted = None if state is None else JobState(state)
        found += await target.store.find(
            Filter(queue=name, state=wanted, task=task, group=group, limit=limit, after=after)
        )
    if as_json:
        print_json([job_data(job) for job in found])
        return
    if not found:
        click.echo("no such jobs")
        return
    now = max([target.store.clock.now(), *(job.created_at for job in found)])
    rows = [
        [job.id, job.task, job.queue, job.group or "", job.state, _when(job, now), job.error or ""] for job in found
    ]
    headers = ["job", "task", "queue", "group", "state", "when", "error"]
    shown = [place for place, name in enumerate(headers) if any(row[place] for row in rows) or name == "job"]
    lines = table(
        [headers[i] for i in shown],
        [[row[i] for i in shown] for row in rows],
        give=("error", "task", "group", "queue"),
        keep=("job",),
        drop=("error", "queue", "group", "when"),
    )
    click.echo("\n".join(lines))
    if len(found) >= limit and len(queue) == 1:
        click.echo(f"\nthe next page: --after {found[-1].id}")


async def queue_names(store: Store) -> list[str]:
    """Every queue that has jobs or a pause."""
    return [queue.name for queue in await store.queues()]


def job_data(job: JobRecord) -> dict[str, Any]:
    """A job as data."""
    times = {name: getattr(job, name) for name in ("created_at", "due_at", "started_at", "finished_at")}
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "group": job.group,
        "state": job.state,
        "priority": job.priority,
        "attempts_made": job.attempts_made,
        "attempts": job.attempts,
        "cost": job.cost,
        "progress": job.progress,
        "error": job.error,
        "worker": job.worker,
        **{name: None if at is None else to_datetime(at) for name, at in times.items()},
        "data": codec.decode(job.data),
        "result": None if job.result is None else codec.decode(job.result),
    }


def _when(job: JobRecord, now: int) -> str:
    if job.state is DELAYED:
        return f"due {ahead(job.due_at, now)}"
    return since(job.finished_at or job.started_at or job.created_at, now)
