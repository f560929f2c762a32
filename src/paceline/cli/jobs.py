"""`paceline jobs`: a page of jobs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from paceline import codec
from paceline.cli.output import ahead, json_option, print_json, table
from paceline.cli.output import since as since_then
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.clock import Micros, to_datetime
from paceline.durations import parse_duration
from paceline.job import DELAYED, JobRecord, JobState
from paceline.stores.interface import Filter, Store

AT_ONCE = 500
"""So many jobs are read at once where the ones to show are searched for."""
STATES = [str(each) for each in JobState if each is not JobState.WAITING_CHILDREN]


@click.command()
@click.option("-q", "--queue", multiple=True, help="Only of these queues.")
@click.option("-s", "--state", type=click.Choice(STATES), help="Only in this state.")
@click.option("-t", "--task", help="Only of this task.")
@click.option("-g", "--group", help="Only of this group.")
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1), help="At most so many per queue.")
@click.option("--oldest", is_flag=True, help="The oldest first, in the order they were added; else the newest.")
@click.option("--since", metavar="DURATION", help="Only jobs that were added in this time, such as 1h.")
@click.option("--after", metavar="JOB", help="Those behind this one: the next page (with one --queue).")
@json_option
@with_store
async def jobs(
    target: Target,
    queue: tuple[str, ...],
    state: str | None,
    task: str | None,
    group: str | None,
    limit: int,
    oldest: bool,
    since: str | None,
    after: str | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    if after is not None and len(queue) != 1:
        raise click.UsageError("--after needs one --queue")
    store, found, total = target.store, list[JobRecord](), 0
    age = None if since is None else parse_duration(since, option="since")
    for name in queue or await queue_names(store):
        wanted = Filter(
            queue=name,
            state=None if state is None else JobState(state),
            task=task,
            group=group,
            limit=limit,
            after=after,
            newest_first=not oldest,
        )
        found += await _page(store, wanted, age)
        counts = await store.counts(name)
        total += sum(counts.values()) if state is None else counts[state]
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
    # How many there are is known where only queues and states were asked for.
    of = f" of {total}" if task is None and group is None and since is None and after is None else ""
    more = f"; the next page: --after {found[-1].id}" if len(found) >= limit and len(queue) == 1 else ""
    if more or (of and len(found) < total):
        order = "the oldest" if oldest else "the newest"
        click.echo(f"\n{len(found)}{of} jobs, {order} first; -n for more{more}")


async def _page(store: Store, wanted: Filter, age: Micros | None) -> list[JobRecord]:
    """A page of jobs that were added not longer ago than this."""
    if age is None:
        return await store.find(wanted)
    first = store.clock.now() - age
    if wanted.newest_first:
        return [job for job in await store.find(wanted) if job.created_at >= first]
    young: list[JobRecord] = []
    page, is_last = msgspec.structs.replace(wanted, limit=AT_ONCE), False
    while len(young) < wanted.limit and not is_last:
        found = await store.find(page)
        young += [job for job in found if job.created_at >= first]
        is_last = len(found) < AT_ONCE
        page = page if is_last else msgspec.structs.replace(page, after=found[-1].id)
    return young[: wanted.limit]


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
    return since_then(job.finished_at or job.started_at or job.created_at, now)
