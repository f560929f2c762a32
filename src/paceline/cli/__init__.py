"""The `paceline` command; one file per subcommand."""

from __future__ import annotations

import click

import paceline
from paceline.cli.demo import demo
from paceline.cli.migrate import migrate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(paceline.__version__, prog_name="paceline")
def main() -> None:
    """A job queue that holds the pace."""


main.add_command(demo)
main.add_command(migrate)
