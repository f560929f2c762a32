"""`paceline worker jobs:app`: run the jobs of an app, in one process or several."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import click
import msgspec

from paceline.app import App
from paceline.cli.banner import banner
from paceline.cli.health import check_address, serve_health
from paceline.cli.logs import configure_logs
from paceline.cli.reports import Reports
from paceline.cli.running import GRACE_EXCEEDED, failure
from paceline.cli.signals import Signals
from paceline.cli.supervise import supervise
from paceline.cli.target import find_settings, load_app
from paceline.durations import parse_duration
from paceline.errors import ConfigError, PacelineError, StoreError


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is to do."""

    app: str
    concurrency: int = 10
    queues: tuple[str, ...] = ()
    processes: int = 1
    burst: bool = False
    reload: bool = False
    grace: str = "25s"
    health: str | None = None
    log_format: str = "text"
    log_level: str = "info"


def worker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which app, how many at once, which queues."""
    for option in (
        click.option(
            "-q",
            "--queue",
            "queues",
            multiple=True,
            envvar=["PACELINE_WORKER_QUEUE", "PACELINE_WORKER_QUEUES"],
            help="Only these queues; those of the tasks unless given.",
        ),
        click.option(
            "-c", "--concurrency", default=10, show_default=True, type=click.IntRange(1), help="Jobs at once."
        ),
        click.option(
            "-a", "--app", "named", metavar="MODULE:APP", allow_from_autoenv=False, help="The same as the argument."
        ),
        click.argument("app", required=False),
    ):
        function = option(function)
    return function


@click.command()
@worker_options
@click.option("-p", "--processes", default=1, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--burst", is_flag=True, help="End when nothing is waiting, delayed or active.")
@click.option("--reload", is_flag=True, help="Start anew when a Python file below this folder changes.")
@click.option("--grace", default="25s", show_default=True, help="How long running jobs may go on when told to stop.")
@click.option("--health", metavar="HOST:PORT", help="Answer probes here: /livez and /readyz.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def worker(app: str | None, named: str | None, **options: object) -> None:
    """Run the jobs of APP, such as jobs:app, until Ctrl-C.

    The first Ctrl-C (or SIGTERM) lets running jobs end within the grace, the second hands them back at once.
    Exit codes: 0 clean, 1 crash, 2 wrong use, 3 grace exceeded, 4 store unreachable at start.
    """
    start(one_of(app, named), options)


def one_of(app: str | None, named: str | None) -> str | None:
    """The app as argument or as option, as with every other command."""
    if app is not None and named is not None and app != named:
        raise click.UsageError(f"APP is {app!r}, --app {named!r}: give one of them")
    return app or named


def start(app: str | None, options: dict[str, object]) -> None:
    """Check everything that can be checked, then work."""
    try:
        plan = msgspec.convert({**options, "app": _app_name(app)}, Plan)
        parse_duration(plan.grace, option="grace", zero=True)
        if plan.health is not None:
            check_address(plan.health)
        if plan.reload and plan.burst:
            raise ConfigError("burst=True is wrong beside reload: a burst ends, a reload goes on", option="burst")
        if (plan.processes > 1 or plan.reload) and not Reports.is_child():
            if plan.processes > 1:
                _check_shared(load_app(plan.app))
            sys.exit(supervise(plan))
        sys.exit(asyncio.run(work(plan, load_app(plan.app))))
    except PacelineError as error:
        raise failure(error) from error


async def work(plan: Plan, app: App) -> int:
    """One process: until it is told to stop; gives the exit code."""
    configure_logs(plan.log_level, plan.log_format == "json")
    worker = app.worker(queues=list(plan.queues) or None, concurrency=plan.concurrency)
    signals = Signals(worker, plan.grace)
    signals.install()
    reports = Reports(signals.stop)
    health: asyncio.Server | None = None

    async def is_live() -> tuple[bool, dict[str, object]]:
        return True, {"worker": worker.name}  # whoever answers lives

    async def is_ready() -> tuple[bool, dict[str, object]]:
        if signals.stopping:
            return False, {"worker": worker.name, "why": "it stops"}
        try:
            async with asyncio.timeout(2):
                await app.store.workers()
        except (StoreError, TimeoutError) as error:
            return False, {"worker": worker.name, "why": str(error) or "the store does not answer"}
        return True, {"worker": worker.name}

    try:
        async with app:
            if plan.health is not None and not reports.is_child():
                health = await serve_health(plan.health, is_live, is_ready)
            if (not reports.is_child() or plan.processes == 1) and plan.log_format == "text":
                click.echo(await banner(plan, app, worker), err=True)
            reports.begin(is_ready)
            await worker.run(until_empty=plan.burst)
            await signals.stopped()
    finally:
        reports.end()
        if health is not None:
            health.close()
    code = GRACE_EXCEEDED if worker.grace_exceeded and not signals.hurried else 0
    if worker.grace_exceeded or signals.hurried:
        _leave_threads(code)
    return code


def _leave_threads(code: int) -> None:
    """Jobs were handed back: a handler that goes on in a thread cannot be stopped, and must not keep us."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _app_name(app: str | None) -> str:
    found = find_settings({"app": app}).get("app")
    if found is None:
        raise ConfigError(
            "no app: name it (paceline worker jobs:app), set PACELINE_APP, "
            'or write app = "jobs:app" under [tool.paceline] in pyproject.toml',
            option="app",
        )
    return found.value


def _check_shared(app: App) -> None:
    if app.store.address.startswith("memory://"):
        raise ConfigError(
            "processes > 1 is wrong with memory://, which lives inside one process: each would have its own queue; "
            "use sqlite:///jobs.db, PostgreSQL or Redis",
            option="processes",
        )
