"""The page of commands names every command and every option there is, and none that is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from paceline.cli import COMMANDS
from paceline.cli.group import group as main

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
SHARED = {"--help", "--version", "--app", "--store", "--namespace", "--json"}


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for below, each in command.commands.items():
                yield f"{name} {below}", each


def test_every_command_is_on_the_page() -> None:
    missing = [name for name, _ in commands() if f"paceline {name.removesuffix(' list')}" not in PAGE]

    assert missing == []


def test_every_option_is_on_the_page_and_every_option_there_exists() -> None:
    real = {
        option for _, each in commands() for parameter in each.params for option in parameter.opts if "--" in option
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE))

    assert (real - SHARED) - named == set()
    assert named - real - SHARED == set()


def test_each_command_says_what_it_does() -> None:
    silent = [name for name, command in commands() if not command.help]

    assert silent == []
