"""The `paceline` command; one file per subcommand, imported when it is called."""

from __future__ import annotations

import os
from importlib import import_module

import click

from paceline import __version__

COMMANDS = {
    "demo": "Watch webhooks meet a quota: first as fast as possible, then with limits.",
    "worker": "Run the jobs of an app.",
    "dev": "Run a worker that starts anew when a file changes.",
    "status": "Queues, limits and how full they are, workers.",
    "why": "Why a job waits, or what became of it.",
    "jobs": "List jobs.",
    "limits": "List limits, change them, hold them.",
    "enqueue": "Add a job, or many from a file.",
    "pause": "Start nothing of a queue, a task or a group.",
    "resume": "Take a pause back.",
    "retry": "Run finished jobs once more.",
    "cancel": "Cancel jobs.",
    "clean": "Remove finished jobs.",
    "migrate": "Bring the schema of a PostgreSQL database to this version.",
    "doctor": "Versions, settings and where they come from, the store's health.",
}


class Commands(click.Group):
    """Knows the commands by name and imports one only when it is called, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"paceline.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PACELINE"},
    epilog="Every command finds your app by -a jobs:app, PACELINE_APP or [tool.paceline] in pyproject.toml, "
    "or a store by --store URL or PACELINE_STORE.",
)
@click.version_option(__version__, prog_name="paceline")
@click.pass_context
def main(context: click.Context) -> None:
    """A job queue that holds the pace: as many starts as your limits allow, and never one more."""
    if os.environ.get("NO_COLOR"):
        context.color = False
