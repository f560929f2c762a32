"""The group of commands: each is imported only when it is called."""

from __future__ import annotations

import os
from importlib import import_module

import click

from paceline import __version__
from paceline.cli import COMMANDS, overview


class Commands(click.Group):
    """Knows the commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"paceline.cli.{name}"), name)
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(overview())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PACELINE"})
@click.version_option(__version__, prog_name="paceline")
@click.pass_context
def group(context: click.Context) -> None:
    """A job queue that holds the pace."""
    if os.environ.get("NO_COLOR"):
        context.color = False
