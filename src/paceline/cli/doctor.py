"""`paceline doctor`: versions, settings and where each came from, the store's health, and what looks wrong."""

from __future__ import annotations

import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click
import msgspec

from paceline import __version__
from paceline.cli.output import clean, counted, glyph, json_option, print_json, without_secrets
from paceline.cli.overview import SEARCHED, LimitLine, Overview, look
from paceline.cli.running import execute, failure
from paceline.cli.target import SETTINGS, Target, find_settings, find_target, store_options
from paceline.errors import PacelineError
from paceline.lifecycle.lags import lags_under
from paceline.stores.address import without_password

PACKAGES = ("msgspec", "click", "rich", "psycopg", "redis", "hiredis")
LATE = 0.05
"""Seconds; a store that takes longer for the simplest question is far away or busy."""
AWAY = 300_000_000
"""Microseconds; a worker that was not heard for so long is gone."""


class Health(msgspec.Struct, kw_only=True):
    """What the doctor found."""

    versions: dict[str, str]
    settings: dict[str, dict[str, str]]
    store: dict[str, Any] | None = None
    warnings: list[str]


@click.command()
@json_option
@store_options
def doctor(as_json: bool, **given: str | None) -> None:
    """Versions, settings and where each came from, the store's health, and what looks wrong."""
    execute(_doctor(as_json, given))


async def _doctor(as_json: bool, given: dict[str, str | None]) -> None:
    problem: PacelineError | None = None
    settings = {}
    for name, setting in find_settings(given).items():
        value = without_password(setting.value) if name == "store" else setting.value
        settings[name] = {"value": value, "source": setting.source}
    health = Health(versions=versions(), settings=settings, warnings=[])
    try:
        target = find_target(given)
        await _examine(target, health)
    except PacelineError as error:
        problem = error
        if as_json:
            health.warnings.append(without_secrets(str(error)))
    if as_json:
        print_json(health)
    else:
        _print(health, problem)
    if problem is not None:
        raise failure(problem)


def versions() -> dict[str, str]:
    """What is installed."""
    found = {"paceline": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


async def _examine(target: Target, health: Health) -> None:
    store = target.store
    try:
        await store.open()
        took = []
        for _ in range(5):
            began = time.perf_counter()
            await store.workers()
            took.append(time.perf_counter() - began)
        about = await store.about()
        seen = await look(store, searched=SEARCHED)
        health.store = {
            "address": store.address,
            "namespace": store.namespace,
            "server": about.server,
            **about.facts,
            "answers in": f"{sorted(took)[2] * 1000:.1f} ms",
            "queues": len(seen.queues),
            "limits": len(seen.limits),
            "workers": len(seen.workers),
        }
        health.warnings += about.warnings
        if sorted(took)[2] > LATE:
            health.warnings.append(f"the store takes {sorted(took)[2] * 1000:.0f} ms for the simplest question")
        health.warnings += complaints(target, seen)
    finally:
        await store.close()


def complaints(target: Target, seen: Overview) -> list[str]:
    """What is probably not meant: limits for tasks that nobody knows, jobs that nobody serves, workers long gone."""
    found = []
    known = {task for worker in seen.workers for task in worker.tasks or ()}
    anything = any(worker.tasks is None for worker in seen.workers)
    if target.app is not None:
        known |= set(target.app.tasks)
    for line in seen.limits:
        missing = sorted((line.limit.tasks or frozenset()) - known)
        if missing and known and not anything:
            found.append(f"limit {line.limit.name!r} names tasks that nobody knows: {', '.join(missing)}")
    found += [late for line in seen.limits for late in _late_handlers(line, seen)]
    served = {queue for worker in seen.workers for queue in worker.queues}
    for queue in seen.queues:
        waiting = queue.counts["waiting"]
        if waiting and queue.name not in served:
            found.append(
                f"{counted(waiting, 'job waits', 'jobs wait')} in queue {queue.name!r}, which no worker serves"
            )
        if waiting and queue.paused:
            found.append(f"{counted(waiting, 'job waits', 'jobs wait')} in queue {queue.name!r}, which is paused")
        for task, number in seen.unknown.get(queue.name, {}).items():
            at_least = "at least " if queue.counts["waiting"] > SEARCHED else ""
            found.append(
                f"{at_least}{counted(number, 'job waits', 'jobs wait')} in queue {queue.name!r} for the task {task!r}, "
                "which no worker of the queue knows: start one that does, or cancel them"
            )
    for worker in seen.workers:
        if worker.seen_at < seen.now - AWAY:
            found.append(f"worker {worker.id} was not heard for {(seen.now - worker.seen_at) // 60_000_000} minutes")
    return found


def _late_handlers(line: LimitLine, seen: Overview) -> list[str]:
    """Tasks whose handlers often begin later after their start than a limit's guard allows."""
    return [
        f"handlers of task {task!r} begin {lag.p99 // 1000} ms late (99 of 100 earlier), but limit "
        f"{line.limit.name!r} has a guard of {line.guard // 1000} ms: give it a longer guard, or the worker fewer slots"
        for task, lag in sorted(lags_under(line.limit, seen.workers).items())
        if lag.late and lag.p99 > line.guard > 0
    ]


def _print(health: Health, problem: PacelineError | None) -> None:
    _section("versions", health.versions)
    shown = {name: f"{said['value']}  (from {said['source']})" for name, said in health.settings.items()}
    _section("settings", {name: shown.get(name, "not set") for name in SETTINGS})
    if health.store is not None:
        _section("store", {name: str(value) for name, value in health.store.items()})
    for text in health.warnings:
        click.echo(click.style(f"{glyph('⚠', '!')} {clean(text)}", fg="yellow"))
    if not health.warnings and problem is None:
        click.echo(click.style(f"{glyph('✓', 'ok:')} nothing looks wrong", fg="green"))


def _section(title: str, lines: dict[str, str]) -> None:
    click.echo(click.style(title, bold=True))
    for name, text in lines.items():
        click.echo(f"  {name:<18} {clean(text)}")
    click.echo()
