"""Step 3: call the handler, in the loop, in a thread or in a process of its own, and say how it ended."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import signal
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from paceline.clock import since_boot
from paceline.errors import ConfigError, require
from paceline.job import Job
from paceline.lifecycle.finish import Crashed, Raised, RunEnd, Succeeded
from paceline.lifecycle.gate import Passage
from paceline.lifecycle.process import Child, ChildDied, Children
from paceline.lifecycle.watch import WATCH, Began
from paceline.text import is_a, show

Isolation: TypeAlias = Literal["thread", "process"]

_current: contextvars.ContextVar[Job[Any] | list[Job[Any]]] = contextvars.ContextVar("paceline_current_job")


def current_job() -> Job[Any]:
    """The job whose handler runs here; also in threads. `LookupError` outside of a handler."""
    try:
        job = _current.get()
    except LookupError:
        raise LookupError("current_job() is only known inside a handler") from None
    if isinstance(job, list):
        raise LookupError("a batch handler runs several jobs: use the list it was given")
    return job


def current_jobs() -> list[Job[Any]]:
    """The jobs whose handler runs here: none, one, or a batch."""
    found = _current.get(None)
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


@dataclass(frozen=True, slots=True)
class Call:
    """How to call a handler: `function(job)` (or `function(jobs)` for a batch)."""

    function: Callable[..., Any]
    is_async: bool
    isolation: Isolation = "thread"
    importable: Callable[..., Any] | None = None
    """What a process of its own imports and calls; `function` unless a task wraps it."""
    pack: Callable[[Any], Any] | None = None
    """What is stored for a result; None: the result as it is."""

    @classmethod
    def of(cls, function: Callable[..., Any], isolation: Isolation = "thread") -> Call:
        """Look at a handler once: coroutine function or plain."""
        require(callable(function), "handler", function, "a function that takes a job")
        require(isolation in ("thread", "process"), "isolation", isolation, '"thread" or "process"')
        if isolation == "process":
            check_importable(function)
        return cls(function, is_coroutine_function(function), isolation)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """True for async functions, also behind `functools.partial` and objects with an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def check_importable(function: Callable[..., Any]) -> None:
    """A process of its own finds its function by name: it must be at the top of a module."""
    name = getattr(function, "__qualname__", "<locals>")
    if "<locals>" in name or "<lambda>" in name:
        raise ConfigError(
            f"handler={show(function)} is wrong: with isolation='process' expected a function at the top of a module",
            option="handler",
            value=function,
        )


class Late:
    """The run may not begin before the store has decided again."""


LATE = Late()


async def run_in_loop(call: Call, jobs: Job[Any] | list[Job[Any]], began: Began | None = None) -> RunEnd:
    """Run an async handler in this task; being cancelled is the caller's business."""
    _current.set(jobs)
    try:
        handler = call.function(jobs)
        return Succeeded(await (handler if began is None else _watched(handler, began)))
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return _raised(error)


@types.coroutine
def _watched(handler: Coroutine[Any, Any, Any], began: Began) -> Generator[Any, Any, Any]:
    """Await a handler, and say so when it has come to its first pause: it has begun by then."""
    try:
        waits_for = handler.send(None)
    except BaseException as end:
        began(since_boot())
        if isinstance(end, StopIteration):
            return end.value
        raise
    began(since_boot())
    while True:
        try:
            yield waits_for
        except BaseException as error:  # what the loop throws in, as a rule that it is cancelled
            try:
                waits_for = handler.throw(error)
            except StopIteration as end:
                return end.value
        else:
            return (yield from handler)


async def run_in_thread(
    call: Call,
    jobs: Job[Any] | list[Job[Any]],
    threads: Executor,
    passage: Passage | None = None,
    began: Began | None = None,
) -> RunEnd | Late:
    """Run a plain handler in a thread. A thread cannot be stopped: whoever cancels must wait for its end."""
    _current.set(jobs)
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    gate = None if began is None else functools.partial(_pass_in_thread, passage, began, loop)
    end = await loop.run_in_executor(threads, context.run, _call_plain, call.function, jobs, gate)
    if not isinstance(end, Succeeded) or not isinstance(end.value, Awaitable):
        return end
    try:
        # A plain function may still hand over something to await (a lambda, a wrapper that is not declared async).
        return Succeeded(await end.value)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return _raised(error)


async def run_in_process(
    call: Call,
    job: Job[Any],
    children: Children,
    max_result: int,
    passage: Passage | None = None,
    began: Began | None = None,
) -> RunEnd | Late:
    """Run a handler in a process of its own; whoever cancels kills it."""
    child: Child = await children.take()
    try:
        function, as_task = call.importable or call.function, call.importable is not None
        latest = None if passage is None or passage.opened else passage.since + passage.guard
        end = await child.run(function, job, as_task=as_task, max_result=max_result, latest=latest, began=began)
    except ChildDied as died:
        return Crashed(str(died))
    except BaseException as error:
        # It still runs the handler: it must not be given another job.
        child.kill()
        if isinstance(error, Exception):
            return Raised(error)
        raise
    children.give(child)
    return LATE if end is None else end


def _pass_in_thread(passage: Passage | None, began: Began, loop: asyncio.AbstractEventLoop) -> bool:
    """The gate in a thread, and one more look when the handler has begun."""
    if passage is not None and passage.is_late:
        return False
    WATCH.passed(began, loop)
    return True


def _call_plain(
    function: Callable[..., Any], jobs: Job[Any] | list[Job[Any]], gate: Callable[[], bool] | None
) -> RunEnd | Late:
    """Call in the thread and bring back the end as a value: a future cannot carry every exception."""
    if gate is not None and not gate():
        return LATE
    try:
        return Succeeded(function(jobs))
    except BaseException as error:
        # Ctrl-C reaches the main thread only: here it is the handler's own.
        return Raised(error)


def _raised(error: BaseException) -> Raised:
    """A handler that calls exit() ends its job, not the worker; a Ctrl-C that met its code ends the program."""
    if is_a(error, KeyboardInterrupt) and ctrl_c_raises():
        raise error
    return Raised(error)


def ctrl_c_raises() -> bool:
    """True where a Ctrl-C is raised in whatever code runs; `asyncio.run` cancels, and the command line stops."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
