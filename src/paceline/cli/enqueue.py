"""`paceline enqueue`: add a job by hand, or many from a file."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from typing import IO, Any, cast

import click
import msgspec

from paceline.argument_types import Misfit
from paceline.cli.output import counted, json_option, print_json
from paceline.cli.progress import progress_bar
from paceline.cli.running import with_store
from paceline.cli.target import Target
from paceline.errors import ConfigError
from paceline.options import JobOptions
from paceline.task import Task

AT_ONCE = 500
"""So many jobs go into one call."""


@click.command()
@click.argument("task")
@click.argument("args", nargs=-1)
@click.option("--data", help="The whole payload as JSON, for handlers of a Queue (instead of ARGS).")
@click.option(
    "-f",
    "--file",
    type=click.File("r", encoding="utf-8"),
    help="One call per line, as JSON: a list, or an object of named arguments; - is standard input.",
)
@click.option("-q", "--queue", help="The queue; the task's own unless given.")
@click.option("-g", "--group", help="The group (tenant).")
@click.option("--delay", help="Start it not before this long, such as 5m.")
@click.option("--priority", type=int, help="Lower goes first; 0 unless given.")
@click.option("--attempts", type=int, help="How many tries it has in total.")
@click.option("--job-id", help="Its id; adding the same id again adds nothing.")
@json_option
@functools.partial(with_store, makes=True)
async def enqueue(
    target: Target,
    task: str,
    args: tuple[str, ...],
    data: str | None,
    file: IO[str] | None,
    queue: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Add a job of TASK: ARGS are JSON values or plain text, name=value for named ones.

    With an app each is read as its parameter asks: 12345 is text for `name: str` and a number for `n: int`.

    paceline enqueue send_email ada@example.org subject=Hi --group tenant-7
    """
    if sum((bool(args), data is not None, file is not None)) > 1:
        raise click.UsageError("give ARGS, --data or --file, not several of them")
    if file is not None and given["job_id"] is not None:
        raise click.UsageError("--job-id names one job, --file adds many: all but the first would be dropped")
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    known = None if target.app is None else target.app.tasks.get(task)
    if target.app is not None and known is None:
        names = ", ".join(sorted(target.app.tasks)) or "none"
        raise ConfigError(f"task={task!r} is wrong: the app has the tasks {names}", option="task", value=task)
    if known is not None:
        options = {**known.options, **options}
        queue = queue or known.queue
    line = target.desk.queue(queue or "default")
    if file is not None:
        lines = _lines(file)
        payloads = [_line(line, number, known) for number, line in enumerate(lines, 1) if line.strip()]
        with progress_bar(f"adding {task}", len(payloads)) as advance:
            added = 0
            for first in range(0, len(payloads), AT_ONCE):
                part = payloads[first : first + AT_ONCE]
                added += len(await line.add_many([(task, payload, _options(options)) for payload in part]))
                advance(len(part))
        if as_json:
            print_json({"added": added, "queue": line.name, "task": task})
        else:
            click.echo(f"added {counted(added)} of {task} to queue {line.name}")
        return
    payload = _json(data, "data") if data is not None else _call(args, known)
    if known is not None:
        check_call(known, payload)
    job = await line.add(task, payload, **_options(options))
    if as_json:
        print_json({"id": job.id, "queue": job.queue, "task": job.task, "state": job.state})
    else:
        click.echo(job.id)
        if sys.stdout.isatty():
            click.echo(f"added to queue {job.queue}; ask with: paceline why {job.id}", err=True)


def _options(options: dict[str, Any]) -> JobOptions:
    return cast(JobOptions, options)  # checked where every job's options are


def _lines(file: IO[str]) -> list[str]:
    try:
        return file.readlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"file={file.name!r} is wrong: expected JSON in UTF-8 ({error})", option="file") from error


def _call(args: tuple[str, ...], task: Task[Any, Any, Any] | None) -> dict[str, Any]:
    """The arguments of a task, as its worker calls it."""
    plain: list[Any] = []
    named: dict[str, Any] = {}
    by_place, by_name = ([], {}) if task is None else _wanted(task)
    for each in args:
        name, equals, value = each.partition("=")
        if equals and name.isidentifier():
            named[name] = _value(value, by_name.get(name, by_name.get("**")))
        else:
            plain.append(_value(each, by_place[len(plain)] if len(plain) < len(by_place) else by_name.get("*")))
    return {"args": plain, "kwargs": named}


def _wanted(task: Task[Any, Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The types that a task's parameters ask for, by place and by name; `*` and `**` are the rest."""
    try:
        hints = typing.get_type_hints(task.function)
    except Exception:
        # A name that cannot be resolved (imported for type checkers only): JSON decides.
        return [], {}
    parameters = list(inspect.signature(task.function).parameters.values())
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    by_name = {stars.get(each.kind, each.name): hints.get(each.name) for each in parameters}
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [hints.get(each.name) for each in parameters if each.kind in placed], by_name


def _value(text: str, wanted: Any = None) -> Any:
    """A JSON value or plain text: the first that is of the type asked for."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if wanted is None or isinstance(value, str) or _is_a(value, wanted) or not _is_a(text, wanted):
        return value
    return text


def _is_a(value: Any, wanted: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _json(text: str, option: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{option}={text[:80]!r} is wrong: expected JSON ({error})", option=option) from error


def _line(line: str, number: int, known: Task[Any, Any, Any] | None) -> Any:
    """A line of a file: a list or an object is what a task is called with, {"args": …, "kwargs": …} both."""
    payload = _json(line, f"line {number}")
    if known is None:
        return payload
    if isinstance(payload, list):
        payload = {"args": payload, "kwargs": {}}
    elif not isinstance(payload, dict):
        payload = {"args": [payload], "kwargs": {}}
    elif payload.keys() != {"args", "kwargs"}:
        payload = {"args": [], "kwargs": payload}
    check_call(known, payload, f"line {number}: ")
    return payload


def check_call(task: Task[Any, Any, Any], payload: Any, where: str = "") -> None:
    """Refuse arguments that the task's function does not take: the worker could only fail."""
    if not isinstance(payload, dict) or payload.keys() != {"args", "kwargs"}:
        raise ConfigError(f'{where}the data of a task is {{"args": […], "kwargs": {{…}}}}, not {payload!r:.80}')
    try:
        task.arguments.unpack(payload)
    except Misfit as error:
        raise ConfigError(f"{where}{task.name}: {error}", option="args", value=payload) from error
