"""`paceline why JOB`: one sentence, then the details."""

from __future__ import annotations

from typing import Any

import click

from paceline import codec
from paceline.cli.output import ahead, bar, clean, in_words, json_option, print_json, short, since
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.clock import NEVER, Micros
from paceline.job import ACTIVE, FINISHED, JobRecord
from paceline.limits import Limit
from paceline.limits.explain import Standing, Usage, explain
from paceline.stores.interface import Filter, Store

SHOWN = 5
"""So many holders of slots and lines of a log are shown."""


@click.command()
@click.argument("job")
@json_option
@with_store
async def why(target: Target, job: str, as_json: bool) -> None:
    """Why JOB waits: which limit refuses it, how full, until when; or what became of it."""
    standing = await target.store.standing(job)
    served = any(standing.job.queue in worker.queues for worker in await target.store.workers())
    holders = await _all_holders(target.store, standing)
    text = explain(standing).text
    if not served and standing.job.state not in FINISHED:
        text += f"; no worker serves queue {standing.job.queue!r} now"
    if as_json:
        print_json({**_data(standing, holders), "text": text, "served": served})
        return
    click.echo(click.style(clean(text), bold=True))
    click.echo()
    details = _details(standing, holders)
    if not served and standing.job.state not in FINISHED:
        details["workers"] = [f"none serves queue {standing.job.queue!r} now"]
    for title, lines in details.items():
        for number, line in enumerate(lines):
            click.echo(f"  {title if number == 0 else '':<10} {clean(line)}")


async def _all_holders(store: Store, standing: Standing) -> dict[str, list[JobRecord]]:
    """Who holds the slots of the limits that only a finish opens."""
    full = [usage for usage in standing.keys if usage.opens_at >= NEVER and usage.never_above is None]
    limits = {limit.name: limit for limit in await store.limits()} if full else {}
    return {usage.limit: await _holders(store, limits[usage.limit], usage) for usage in full if usage.limit in limits}


async def _holders(store: Store, limit: Limit, usage: Usage) -> list[JobRecord]:
    """The running jobs that a limit counts."""
    found: list[JobRecord] = []
    names = sorted(limit.queues) if limit.queues is not None else [queue.name for queue in await store.queues()]
    for name in names:
        running = await store.find(Filter(queue=name, state=ACTIVE, group=usage.group, limit=1000))
        found += [job for job in running if limit.meets(name, job.task)]
    return sorted(found, key=lambda job: job.started_at or 0)


def _details(standing: Standing, holders: dict[str, list[JobRecord]]) -> dict[str, list[str]]:
    job, now = standing.job, standing.now
    found: dict[str, list[str]] = {"queue": [job.queue + (f", group {job.group}" if job.group is not None else "")]}
    found["added"] = [since(job.created_at, now)]
    if job.state in FINISHED or job.state is ACTIVE:
        found |= _what_happened(job, now)
        return found
    if job.due_at > now:
        found["due"] = [ahead(job.due_at, now)]
    if standing.keys:
        found["limits"] = [_limit_line(usage, job) for usage in standing.keys]
    slots = [line for usage in standing.keys for line in _slots(usage, holders.get(usage.limit), now)]
    if slots:
        found["slots"] = slots
    position = [_position(standing)]
    if standing.groups > 1:
        position.append(f"{standing.groups} groups take turns")
    found["position"] = [", ".join(position)]
    if job.attempts_made or job.error:
        found["attempts"] = [f"{job.attempts_made} of {job.attempts} used"]
        found["last error"] = [job.error or "none"]
    when = None if standing.paused or not standing.known else standing.earliest
    first = next((usage.reserved_by for usage in standing.keys if usage.reserved_by not in (None, job.id)), None)
    if any(usage.never_above is not None for usage in standing.keys):
        found["earliest"] = ["never: it fails with NeverFits when a worker claims it"]
    elif when is None:
        found["earliest"] = [f"not known: that takes {' and '.join(_what_helps(standing))}"]
    else:
        found["earliest"] = [ahead(when, now) if first is None or when > now else f"after the bigger job {first}"]
    return found


def _position(standing: Standing) -> str:
    place = "in the queue" if standing.job.group is None else "of its group"
    if not standing.ahead:
        return f"first {place}"
    jobs = "job" if standing.ahead == 1 else "jobs"
    if standing.job.group is None:
        return f"{standing.ahead} {jobs} ahead of it {place}"
    return f"{standing.ahead} {jobs} {place} ahead of it"


def _what_helps(standing: Standing) -> list[str]:
    """What has to happen before there can be an earliest start."""
    found = ["an operator who resumes what is paused"] if standing.paused else []
    if not standing.known:
        found.append("a worker that knows the task")
    if standing.earliest is None:
        found.append("a job that finishes")
    return found


def _slots(usage: Usage, jobs: list[JobRecord] | None, now: Micros) -> list[str]:
    """Who holds the slots of a limit."""
    if jobs is None:
        return []
    lines = [
        f"{usage.limit}: {job.id} ({job.task}) for {short(now - (job.started_at or now))}, {job.worker}" for job in jobs
    ]
    if len(lines) > SHOWN:
        return [*lines[:SHOWN], f"{usage.limit}: and {len(lines) - SHOWN} more"]
    if usage.used > len(lines):
        lines.append(f"{usage.limit}: {usage.used - len(lines)} by code that holds a permit")
    return lines


def _what_happened(job: JobRecord, now: Micros) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if job.started_at is not None:
        waited = job.started_at - job.created_at
        found["started"] = [f"{since(job.started_at, now)}, after it waited for {short(waited)}"]
    if job.finished_at is not None:
        found["ended"] = [since(job.finished_at, now)]
    found["attempts"] = [f"{job.attempts_made} of {job.attempts}"]
    if job.returns:
        found["sent back"] = [f"{job.returns} times by the service (no attempt used)"]
    if job.crashes:
        found["crashes"] = [f"{job.crashes}: its worker died"]
    if job.progress:
        found["progress"] = [f"{job.progress:g} % {job.message or ''}".rstrip()]
    if job.error:
        found["error"] = [job.error]
    if job.result is not None:
        found["result"] = [str(codec.decode(job.result))[:200]]
    if job.logs:
        found["log"] = list(job.logs[-SHOWN:])
    return found


def _limit_line(usage: Usage, job: JobRecord) -> str:
    state = "free" if usage.reserved_by in (None, job.id) else f"kept free for the bigger job {usage.reserved_by}"
    if usage.never_above is not None:
        state = f"never allows the cost of {usage.cost}"
    elif usage.hold_until > usage.now:
        state = f"held for {short(usage.hold_until - usage.now)}"
        state += f" ({usage.hold_reason})" if usage.hold_reason else ""
    elif usage.opens_at >= NEVER:
        state = "full until one finishes"
    elif usage.opens_at > usage.now:
        state = f"full for {short(usage.opens_at - usage.now)}"
    name = usage.limit + (f" of {usage.group}" if usage.group is not None else "")
    full = "" if usage.allowed is None else f"{bar(usage.used, usage.allowed)} {usage.used}/{usage.allowed}, "
    return f"{name}: {full}{in_words(usage.kind)}: {state}"


def _data(standing: Standing, holders: dict[str, list[JobRecord]]) -> dict[str, Any]:
    job, now = standing.job, standing.now
    said = explain(standing)
    return {
        "text": said.text,
        "state": job.state,
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "group": job.group,
        "attempts_made": job.attempts_made,
        "attempts": job.attempts,
        "error": job.error,
        "ahead": said.ahead,
        "groups": standing.groups,
        "paused": standing.paused,
        "known": standing.known,
        "earliest_start": said.earliest_start,
        "now": now,
        "limits": [
            {
                "limit": usage.limit,
                "group": usage.group,
                "kind": repr(usage.kind),
                "used": usage.used,
                "allowed": usage.allowed,
                "refuses": usage.opens_at > now,
                "never_fits": usage.never_above is not None,
                "until": None if usage.opens_at >= NEVER else max(usage.opens_at, now),
                "held_until": usage.hold_until if usage.hold_until > now else None,
                "hold_reason": usage.hold_reason if usage.hold_until > now else None,
                "reserved_by": None if usage.reserved_by == job.id else usage.reserved_by,
                "held_by": [each.id for each in holders.get(usage.limit, [])],
            }
            for usage in standing.keys
        ],
    }
