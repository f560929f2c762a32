"""`paceline status`: queues, limits and how full they are, workers; live with `--watch`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from paceline.cli.output import ahead, bar, clean, fit, glyph, in_words, json_option, print_json, short, since, table
from paceline.cli.overview import LimitLine, Overview, look, scope
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.clock import NEVER
from paceline.errors import StoreUnavailable
from paceline.job import JobState
from paceline.stores.interface import QueueRecord, WorkerRecord

STATES = [str(state) for state in JobState if state is not JobState.WAITING_CHILDREN]


@click.command()
@click.option("--watch", is_flag=True, help="Look again every second until Ctrl-C.")
@click.option("--every", default=1.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between two looks.")
@json_option
@with_store
async def status(target: Target, watch: bool, every: float, as_json: bool) -> None:
    """Queues, limits and how full they are, workers."""
    if as_json:
        print_json(as_data(target, await look(target.store)))
    elif not watch:
        click.echo("\n".join(as_text(target, await look(target.store))))
    else:
        await _watch(target, every)


async def _watch(target: Target, every: float) -> None:
    screen = sys.stdout.isatty()
    try:
        if screen:
            click.echo("\x1b[?1049h\x1b[?25l", nl=False)  # another screen, no cursor
        lines = as_text(target, await look(target.store))
        while True:
            if screen:
                click.echo("\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[K\x1b[J", nl=False)
            else:
                click.echo("\n".join(lines) + "\n")
            sys.stdout.flush()
            await asyncio.sleep(every)
            try:
                lines = as_text(target, await look(target.store))
            except StoreUnavailable as error:
                # Whoever watches wants to see it come back.
                lines = [click.style(fit(clean(f"{error}; trying again")), fg="yellow")]
    except asyncio.CancelledError:
        return  # Ctrl-C is how one leaves
    finally:
        if screen:
            click.echo("\x1b[?25h\x1b[?1049l", nl=False)


def as_text(target: Target, seen: Overview) -> list[str]:
    """The page as lines."""
    number = len(seen.workers)
    crew = f"{number} worker{'' if number == 1 else 's'}" if number else "no worker runs"
    lines = [click.style(fit(f"{crew}  {target.store.address}  {target.store.namespace}"), bold=True), ""]
    if seen.queues:
        rows = [
            [_name(queue), *(queue.counts[state] or "" for state in STATES), queue.groups or ""]
            for queue in seen.queues
        ]
        lines += table(["queue", *STATES, "groups"], rows, right=[*STATES, "groups"], give=("queue",))
    else:
        lines.append("no jobs yet")
    for name, tasks in seen.unknown.items():
        said = f"{glyph('⚠', '!')} queue {name}: no worker knows the task {', '.join(map(repr, tasks))} of waiting jobs"
        lines.append(click.style(fit(clean(said)), fg="yellow"))
    if seen.limits:
        lines += ["", *limit_table(seen.limits)]
    if seen.workers:
        rows = [
            [worker.id, ", ".join(worker.queues), since(worker.seen_at, seen.now), _lag(worker)]
            for worker in seen.workers
        ]
        head = ["worker", "queues", "seen", "begins after"]
        lines += ["", *table(head, rows, give=("queues", "worker"), drop=("queues", "begins after"))]
    return lines


def limit_table(lines: list[LimitLine]) -> list[str]:
    """Each limit: how full, held or not, how many wait for it, when the next start is possible."""
    rows: list[list[Any]] = []
    for line in lines:
        usage = line.usage
        full = "" if usage.allowed is None else f"{bar(usage.used, usage.allowed)} {usage.used}/{usage.allowed}"
        if line.limit.by and usage.group is None:
            full = "each group"
        held = f"held {short(usage.hold_until - usage.now)}" if usage.hold_until > usage.now else ""
        opens = "when one finishes" if usage.opens_at >= NEVER else ahead(usage.opens_at, usage.now)
        says = in_words(usage.kind) + (" (set by an operator)" if line.override else "")
        rows.append([line.limit.name, full, held or opens, usage.waiting or "", says, scope(line.limit)])
    return table(
        ["limit", "used", "next start", "waiting", "allows", "for"],
        rows,
        right=["waiting"],
        give=("for", "allows"),
        keep=("used",),
        drop=("for", "waiting"),
    )


def as_data(target: Target, seen: Overview) -> dict[str, Any]:
    """The page as data."""
    return {
        "store": target.store.address,
        "namespace": target.store.namespace,
        "queues": seen.queues,
        "unknown_tasks": seen.unknown,
        "limits": [limit_data(line) for line in seen.limits],
        "workers": [
            {
                "id": each.id,
                "queues": each.queues,
                "tasks": each.tasks and sorted(each.tasks),
                "seen_at": each.seen_at,
                "lags": each.lags,
            }
            for each in seen.workers
        ],
    }


def limit_data(line: LimitLine) -> dict[str, Any]:
    """One limit as data; instants are microseconds of the store's clock, null where there is none."""
    usage, limit = line.usage, line.limit
    return {
        "name": limit.name,
        "kind": repr(usage.kind),
        "queues": limit.queues and sorted(limit.queues),
        "tasks": limit.tasks and sorted(limit.tasks),
        "by": limit.by,
        "group": usage.group,
        "used": usage.used,
        "open": usage.open,
        "guard": line.guard,
        "allowed": usage.allowed,
        "held_until": usage.hold_until if usage.hold_until > usage.now else None,
        "hold_reason": usage.hold_reason if usage.hold_until > usage.now else None,
        "next_start_at": None if usage.opens_at >= NEVER else max(usage.opens_at, usage.now),
        "waiting": usage.waiting,
        "now": usage.now,
        "declared": repr(limit.kind),
        "override": line.override and {"reason": line.override.reason, "expires_at": line.override.expires_at},
        "override_of_groups": {
            word.group: {"kind": repr(word.kind), "reason": word.reason, "expires_at": word.expires_at}
            for word in line.of_groups
        },
    }


def _lag(worker: WorkerRecord) -> str:
    """How long after their starts a worker's handlers begin, by its slowest task."""
    if not worker.lags:
        return ""
    slowest = max(worker.lags.values(), key=lambda lag: lag.p99)
    late = sum(lag.late for lag in worker.lags.values())
    return f"{slowest.p50 / 1000:.1f} ms (99 %: {slowest.p99 / 1000:.1f} ms)" + (f", {late} late" if late else "")


def _name(queue: QueueRecord) -> str:
    paused = ["paused"] if queue.paused else []
    paused += [f"task {name} paused" for name in queue.paused_tasks]
    paused += [f"group {name} paused" for name in queue.paused_groups[:3]]
    if len(queue.paused_groups) > 3:
        paused.append(f"{len(queue.paused_groups) - 3} more groups paused")
    return queue.name + (f" ({', '.join(paused)})" if paused else "")
