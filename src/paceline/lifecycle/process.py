"""Handlers in processes of their own: a child that hangs or is cancelled is killed, a child that dies is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import importlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from paceline import codec
from paceline.clock import Micros, since_boot
from paceline.job import Job
from paceline.lifecycle.finish import Raised, Succeeded, Unstorable, describe_unstorable
from paceline.lifecycle.watch import Began
from paceline.text import MAX_ERROR, MAX_SHOWN, ChildTraceback, clean, is_a, set_cause, trace

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


MOST_CARRIED = 1024 * 1024
"""Bytes of a pickled error; of a larger one its name and the begin of its text go over."""
PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when the thread that made it ends."""


class ChildDied(Exception):
    """The process ended without an answer."""


class Child:
    """One process that runs one handler at a time."""

    def __init__(self) -> None:
        import multiprocessing  # only those who run handlers in processes wait for it

        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        watched, self._lifeline = spawn.Pipe(duplex=False)
        self._process = spawn.Process(target=_serve, args=(theirs, watched, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        watched.close()

    async def run(
        self,
        function: Callable[..., Any],
        job: Job[Any],
        *,
        as_task: bool,
        max_result: int,
        latest: Micros | None = None,
        began: Began | None = None,
    ) -> Succeeded | Unstorable | Raised | None:
        """Send the job over, pass on its progress, and give back what the handler returned or raised.

        None: it could not begin at `latest` (of `since_boot`) or earlier. `began` is called when it has begun.
        """
        where = (_module_name(function), function.__qualname__)
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        reader = threading.Thread(target=self._read, args=(loop, answers), daemon=True)
        try:
            self._pipe.send((where, as_task, job.record, sys.path, max_result, latest, began is not None))
        except OSError as error:
            raise ChildDied(f"the handler's process is gone: {error}") from error
        reader.start()
        while True:
            what, value = await answers.get()
            if what == "note":
                await (job.log(value[0]) if len(value) == 1 else job.report_progress(*value))
            elif what == "began" and began is not None:
                began(value)
            elif what == "late":
                return None
            elif what == "done":
                return Succeeded(None if value == codec.NULL else msgspec.Raw(value))
            elif what == "raised":
                return Raised(_rebuild(*value))
            elif what == "refused":
                return Unstorable(value)
            else:
                raise ChildDied(f"the handler's process died with exit code {self._exit_code()}")

    def kill(self) -> None:
        """End the process now."""
        if self._process.pid is not None and self._process.is_alive():
            self._process.kill()
        self._process.join(5)
        self._pipe.close()
        self._lifeline.close()

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
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(answers.put_nowait, answer)
            if answer[0] not in ("note", "began"):
                return


class Children:
    """Processes that wait for the next job, so that one is started only when all are busy."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._maker: ThreadPoolExecutor | None = None

    async def take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        if self._maker is None:
            # Linux ends a child with the thread that made it: this one lives as long as there are children.
            self._maker = ThreadPoolExecutor(1, thread_name_prefix="paceline-children")
        making = self._maker.submit(Child)
        try:
            return await asyncio.wrap_future(making)
        except asyncio.CancelledError:
            making.add_done_callback(_kill_unwanted)
            raise

    def give(self, child: Child) -> None:
        self._idle.append(child)

    def close(self) -> None:
        for child in self._idle:
            child.kill()
        self._idle.clear()
        maker, self._maker = self._maker, None
        if maker is not None:
            maker.shutdown(wait=False)


def _kill_unwanted(making: Future[Child]) -> None:
    """Whoever wanted this child was cancelled while it was made."""
    if not making.cancelled() and making.exception() is None:
        making.result().kill()


def _module_name(function: Callable[..., Any]) -> str:
    """The module to import in the child; a script run as `__main__` is found by its file's name."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    return os.path.splitext(os.path.basename(getattr(main, "__file__", "__main__")))[0]


def _rebuild(carried: bytes | None, module: str, name: str, text: str, traceback: str) -> BaseException:
    """The error of the child, or one of its name and text; the child's traceback is its cause."""
    found: Any = None
    if carried is not None:
        try:
            found = pickle.loads(carried)  # from our own child, over our own pipe
        except BaseException as problem:  # its own code may raise anything
            text = f"{text} (this process cannot rebuild the error: {type(problem).__name__})"
    stand_in: type[Exception] = type(name, (Exception,), {"__module__": module})
    error: BaseException = found if is_a(found, BaseException) else stand_in(text)
    set_cause(error, ChildTraceback(traceback))
    return error


class _ChildActions:
    """A job's actions inside the child: progress and log lines go to the parent, which holds the lease."""

    def __init__(self, send: Callable[[tuple[str, Any]], None]) -> None:
        self._send = send

    async def note(self, record: Any, progress: float | None, message: str | None, log: str | None) -> None:
        self._send(("note", (log,) if log is not None else (progress, message)))

    def call_sync(self, call: Callable[[], Any]) -> Any:
        return asyncio.run(call())


def _end_with_parent(watched: Connection, parent: int) -> None:
    """End when the worker is gone, whatever the handler does: its job runs again elsewhere."""
    if sys.platform == "linux":
        # The kernel's word reaches also a handler that holds the interpreter.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    def wait_for_the_end() -> None:
        # Nothing is ever sent: the pipe only ends, when its other end is closed or its process is gone.
        with contextlib.suppress(EOFError, OSError):
            watched.recv()
        os._exit(1)

    threading.Thread(target=wait_for_the_end, name="paceline-lifeline", daemon=True).start()


def _serve(pipe: Connection, watched: Connection, parent: int) -> None:
    """The child's life: run what comes through the pipe until it closes."""
    # The parent decides when to stop; a Ctrl-C in the terminal reaches it too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent(watched, parent)
    one_at_a_time = threading.Lock()

    def send(answer: tuple[str, Any]) -> None:
        with one_at_a_time:
            pipe.send(answer)

    looking: list[threading.Thread] = []

    def pass_gate(latest: Micros | None, is_watched: bool) -> None:
        if latest is not None and since_boot() > latest:
            raise _TooLate
        if is_watched:
            # It comes to speak when the handler lets go of the interpreter: that has begun by then.
            looking.append(threading.Thread(target=lambda: send(("began", since_boot())), daemon=True))
            looking[-1].start()

    while True:
        try:
            where, as_task, record, path, max_result, *gate = pipe.recv()
        except (EOFError, OSError):
            return
        sys.path[:] = path
        try:
            answer = _answer(*_call(where, as_task, record, send, functools.partial(pass_gate, *gate)), max_result)
        except _TooLate:
            answer = ("late", None)
        except BaseException as error:
            answer = ("raised", _carry(error))
        while looking:
            looking.pop().join()
        send(answer)


def _answer(value: Any, pack: Callable[[Any], Any] | None, max_result: int) -> tuple[str, Any]:
    try:
        packed = value if pack is None or value is None else pack(value)
        return "done", codec.encode(packed, maximum=max_result, what="result")
    except Exception as error:  # also what a value of the user's own class raises when it is compared
        return "refused", describe_unstorable(error)


class _TooLate(Exception):
    """The handler would begin later than its guard allows."""


def _call(
    where: tuple[str, str],
    as_task: bool,
    record: Any,
    send: Callable[[tuple[str, Any]], None],
    pass_gate: Callable[[], None],
) -> tuple[Any, Callable[[Any], Any] | None]:
    """What the function returned, and how a task packs it."""
    from paceline.lifecycle.run import _current, is_coroutine_function

    module, name = where
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    job: Job[Any] = Job(record, _ChildActions(send))  # type: ignore[arg-type]  # a child only notes
    _current.set(job)
    pack = None
    pass_gate()
    if as_task:
        # The name leads to the task that wraps the function, or to the function where it was not rebound.
        call_with = getattr(function, "call_with", None)
        value = call_with(job) if call_with else function(*job.data["args"], **job.data["kwargs"])
        pack = function.arguments.result.pack if call_with else None
        is_async = is_coroutine_function(getattr(function, "function", function))
    else:
        value = function(job)
        is_async = is_coroutine_function(function)
    return (asyncio.run(value) if is_async else value), pack


def _carry(error: BaseException) -> tuple[bytes | None, str, str, str, str]:
    """The error itself where it survives the trip, and in any case its name, its text and its traceback."""
    kind = type(error)
    module, name = clean(kind.__module__, MAX_SHOWN), clean(kind.__qualname__, MAX_SHOWN)
    return _pickled(error), module, name, clean(error, MAX_ERROR), trace(error)


def _pickled(error: BaseException) -> bytes | None:
    try:
        carried = pickle.dumps(error)
        if len(carried) <= MOST_CARRIED and is_a(pickle.loads(carried), type(error)):
            return carried
    except BaseException:  # its own code may raise anything
        pass
    return None
