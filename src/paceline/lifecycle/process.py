"""Handlers in processes of their own: a child that hangs or is cancelled is killed, a child that dies is noticed."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paceline import codec
from paceline.job import Job

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class ChildDied(Exception):
    """The process ended without an answer."""


class Child:
    """One process that runs one handler at a time."""

    def __init__(self) -> None:
        import multiprocessing  # only those who run handlers in processes wait for it

        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    async def run(self, function: Callable[..., Any], job: Job[Any], *, as_task: bool) -> Any:
        """Send the job over, pass on its progress, and give back what the handler returned or raised."""
        where = (_module_name(function), function.__qualname__)
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        reader = threading.Thread(target=self._read, args=(loop, answers), daemon=True)
        try:
            self._pipe.send((where, as_task, job.record, sys.path))
        except OSError as error:
            raise ChildDied(f"the handler's process is gone: {error}") from error
        reader.start()
        while True:
            what, value = await answers.get()
            if what == "note":
                await (job.log(value[0]) if len(value) == 1 else job.report_progress(*value))
            elif what == "done":
                return codec.decode(value)
            elif what == "raised":
                raise _rebuild(value)
            else:
                raise ChildDied(f"the handler's process died with exit code {self._exit_code()}")

    def kill(self) -> None:
        """End the process now."""
        if self._process.pid is not None and self._process.is_alive():
            self._process.kill()
        self._process.join(5)
        self._pipe.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def _exit_code(self) -> int | None:
        self._process.join(1)
        return self._process.exitcode

    def _read(self, loop: asyncio.AbstractEventLoop, answers: asyncio.Queue[tuple[str, Any]]) -> None:
        """Wait for answers in a thread: a pipe has no portable place in an event loop."""
        while True:
            try:
                answer = self._pipe.recv()
            except (EOFError, OSError):
                answer = ("died", None)
            if not loop.is_closed():
                loop.call_soon_threadsafe(answers.put_nowait, answer)
            if answer[0] != "note":
                return


class Children:
    """Processes that wait for the next job, so that one is started only when all are busy."""

    def __init__(self) -> None:
        self._idle: list[Child] = []

    async def take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        return await asyncio.to_thread(Child)

    def give(self, child: Child) -> None:
        self._idle.append(child)

    def close(self) -> None:
        for child in self._idle:
            child.kill()
        self._idle.clear()


def _module_name(function: Callable[..., Any]) -> str:
    """The module to import in the child; a script run as `__main__` is found by its file's name."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    return os.path.splitext(os.path.basename(getattr(main, "__file__", "__main__")))[0]


def _rebuild(value: bytes | tuple[str, str, str]) -> BaseException:
    if isinstance(value, bytes):
        error: BaseException = pickle.loads(value)  # from our own child, over our own pipe
        return error
    module, name, text = value
    stand_in: type[Exception] = type(name, (Exception,), {"__module__": module})
    return stand_in(text)


class _ChildActions:
    """A job's actions inside the child: progress and log lines go to the parent, which holds the lease."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def note(self, record: Any, progress: float | None, message: str | None, log: str | None) -> None:
        self._pipe.send(("note", (log,) if log is not None else (progress, message)))

    def call_sync(self, call: Callable[[], Any]) -> Any:
        return asyncio.run(call())


def _serve(pipe: Connection) -> None:
    """The child's life: run what comes through the pipe until it closes."""
    # The parent decides when to stop; a Ctrl-C in the terminal reaches it too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            where, as_task, record, path = pipe.recv()
        except (EOFError, OSError):
            return
        sys.path[:] = path
        try:
            pipe.send(("done", _call(where, as_task, record, pipe)))
        except BaseException as error:
            pipe.send(("raised", _carry(error)))


def _call(where: tuple[str, str], as_task: bool, record: Any, pipe: Connection) -> bytes:
    from paceline.lifecycle.run import _current, is_coroutine_function

    module, name = where
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    job: Job[Any] = Job(record, _ChildActions(pipe))  # type: ignore[arg-type]  # a child only notes
    _current.set(job)
    if as_task:
        # The name leads to the task that wraps the function, or to the function where it was not rebound.
        call_with = getattr(function, "call_with", None)
        value = call_with(job) if call_with else function(*job.data["args"], **job.data["kwargs"])
        is_async = is_coroutine_function(getattr(function, "function", function))
    else:
        value = function(job)
        is_async = is_coroutine_function(function)
    return codec.encode(asyncio.run(value) if is_async else value, what="result")


def _carry(error: BaseException) -> bytes | tuple[str, str, str]:
    """The error itself where it survives the trip, else its name and text."""
    try:
        carried = pickle.dumps(error)
        pickle.loads(carried)
    except Exception:
        return type(error).__module__, type(error).__qualname__, str(error)
    return carried
