"""How a command runs: its coroutine, its store opened and closed around it, its errors as text and exit codes."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from paceline.cli.output import without_secrets
from paceline.cli.target import Target, find_target, store_options
from paceline.errors import ConfigError, MissingExtra, PacelineError, SchemaMismatch, StoreUnavailable

T = TypeVar("T")

CRASHED, WRONG_USE, GRACE_EXCEEDED, NO_STORE, INTERRUPTED = 1, 2, 3, 4, 130


class Failure(click.ClickException):
    """An error for the terminal, with the exit code that says which kind it is."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(without_secrets(message))
        self.exit_code = exit_code  # type: ignore[misc]  # how click is told


def failure(error: PacelineError) -> Failure:
    """What a person reads, and what a script checks: 2 wrong use, 4 no store, 1 everything else."""
    if isinstance(error, ConfigError | MissingExtra | SchemaMismatch):
        return Failure(str(error), WRONG_USE)
    return Failure(str(error), NO_STORE if isinstance(error, StoreUnavailable) else CRASHED)


def execute(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command to its end."""
    # What a store warns of belongs into a worker's log and to the doctor, not between the lines of every command.
    logging.getLogger("paceline").addHandler(logging.NullHandler())
    try:
        return asyncio.run(coroutine)
    except PacelineError as error:
        raise failure(error) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has seen enough (`paceline jobs | head`).
        sys.stderr.close()
        sys.exit(0)


def with_store(function: Callable[..., Coroutine[Any, Any, None]], makes: bool = False) -> Callable[..., None]:
    """A command about a store: it is found, opened, and closed afterwards; `function(target, …)` does the work."""

    @store_options
    @functools.wraps(function)
    def command(*args: Any, app: str | None, store: str | None, namespace: str | None, **options: Any) -> None:
        try:
            target = find_target({"app": app, "store": store, "namespace": namespace}, makes)
        except PacelineError as error:
            raise failure(error) from error
        execute(_around(target, function, args, options))

    return command


async def _around(target: Target, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
    if target.store.address.startswith("memory://"):
        raise ConfigError(
            "memory:// lives inside one process: this command cannot look into another one; "
            "use sqlite:///jobs.db, PostgreSQL or Redis to share a queue"
        )
    try:
        await target.store.open()
        await function(target, *args, **options)
    finally:
        await target.store.close()


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost; without a terminal the flag `--yes` must say so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody is here to answer: say --yes", option="yes")
    click.confirm(question, abort=True)
