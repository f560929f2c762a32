"""`paceline enqueue`: add a job by hand, or many from a file."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import IO, Any, cast

import click
import msgspec

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
    """Add a job of TASK: ARGS are JSON values (or plain text), name=value for named ones.

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
    payload = _json(data, "data") if data is not None else _call(args)
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


def _call(args: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a task, as its worker calls it."""
    plain: list[Any] = []
    named: dict[str, Any] = {}
    for each in args:
        name, equals, value = each.partition("=")
        if equals and name.isidentifier():
            named[name] = _value(value)
        else:
            plain.append(_value(each))
    return {"args": plain, "kwargs": named}


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


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
        inspect.signature(task.function).bind(*payload["args"], **payload["kwargs"])
    except TypeError as error:
        raise ConfigError(f"{where}{task.name}: {error}", option="args", value=payload) from error
