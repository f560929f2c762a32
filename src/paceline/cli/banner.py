"""What a worker says first: six lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paceline import __version__
from paceline.app import App
from paceline.cli.output import clean, in_words
from paceline.worker import Worker

if TYPE_CHECKING:
    from paceline.cli.worker import Plan


async def banner(plan: Plan, app: App, worker: Worker) -> str:
    """Version, store, tasks, limits, slots, and how to stop it."""
    about = await app.store.about()
    limits = [f"{limit.name} ({in_words(limit.kind)})" for limit in await app.store.limits()]
    tasks = ", ".join(sorted(app.tasks)) or "none: nothing will run"
    crew = f"{plan.processes} processes with " if plan.processes > 1 else ""
    lines = {
        f"paceline {__version__}": worker.name if plan.processes == 1 else plan.app,
        "store": f"{app.store.address}, {about.server}, namespace {app.store.namespace}",
        "tasks": tasks,
        "limits": ", ".join(limits) or "none",
        "slots": f"{crew}{plan.concurrency} at once, queues {', '.join(worker.queues)}",
        "stop": f"Ctrl-C: running jobs have {plan.grace}; twice: at once",
    }
    return "\n".join(f"{click.style(f'{title:<15}', bold=True)} {clean(text)}" for title, text in lines.items())
