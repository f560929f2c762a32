"""Task: a function, its options, and the calls that put it into a queue."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from paceline import codec
from paceline.checks import check_name
from paceline.errors import QueueClosed
from paceline.job import Job, NewJob
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.enqueue import enqueue
from paceline.lifecycle.portal import run_sync
from paceline.lifecycle.run import Call, Isolation, check_importable, is_coroutine_function
from paceline.options import JobOptions, new_job

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_JSON_TYPES = (Any, str, int, float, bool, list, dict, None, type(None), inspect.Parameter.empty)


class Task(Generic[P, R, C]):
    """A named function with its options. Calling it runs the function; `enqueue` puts a job into its queue."""

    def __init__(
        self,
        function: Callable[P, C],
        declarations: Declarations,
        *,
        name: str,
        queue: str,
        options: JobOptions,
        isolation: Isolation = "thread",
        within: object = None,
    ) -> None:
        self.function = function
        self.name = check_name(name, option="name")
        self.queue = check_name(queue, option="queue")
        self.options = options
        self.isolation = isolation
        self._declarations = declarations
        self._within = within
        self._signature = inspect.signature(function)
        self._types = _annotations(function)
        self.result_type = self._types.pop("return", None)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function
        # Checked now, so that wrong options are an error where they are written.
        new_job(self.queue, self.name, None, options)
        if isolation == "process":
            check_importable(function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} in queue {self.queue!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now."""
        return self.function(*args, **kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Put a call into the queue: `job = await send_email.enqueue("a@example.org", subject="Hi")`."""
        return (await self._enqueue([self._new_job(args, kwargs)]))[0]

    async def enqueue_many(self, calls: Iterable[Any]) -> list[Job[R]]:
        """Put many calls into the queue, all or none: tuples of arguments, or dictionaries of named ones."""
        jobs = [self._new_job(*_arguments(call)) for call in calls]
        return await self._enqueue(jobs) if jobs else []

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` for code without an event loop."""
        job = self._new_job(args, kwargs)
        return run_sync(self._declarations.store, lambda: self._enqueue([job]), name="enqueue")[0]

    def using(self, *, queue: str | None = None, within: object = None, **options: Unpack[JobOptions]) -> Task[P, R, C]:
        """The same task with other options: `send_email.using(group="tenant-7", delay="5m").enqueue(...)`."""
        return Task(
            self.function,
            self._declarations,
            name=self.name,
            queue=self.queue if queue is None else queue,
            options=cast(JobOptions, {**self.options, **options}),
            isolation=self.isolation,
            within=within or self._within,
        )

    @property
    def call(self) -> Call:
        """How a worker calls it."""
        importable = self.function if self.isolation == "process" else None
        return Call(self.call_with, is_coroutine_function(self.function), self.isolation, importable)

    def call_with(self, job: Job[Any]) -> Any:
        """Call the function with the arguments that a job carries, as the types its signature asks for."""
        data = job.data
        args, kwargs = data["args"], data["kwargs"]
        if self._types:
            bound = self._signature.bind(*args, **kwargs)
            for parameter, value in bound.arguments.items():
                if parameter in self._types:
                    bound.arguments[parameter] = codec.convert(value, self._types[parameter])
            return self.function(*bound.args, **bound.kwargs)
        return self.function(*args, **kwargs)

    def _new_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        self._signature.bind(*args, **kwargs)
        data = {"args": args, "kwargs": kwargs}
        maximum = self._declarations.store.max_payload
        return new_job(self.queue, self.name, data, self.options, max_payload=maximum)

    async def _enqueue(self, jobs: list[NewJob]) -> list[Job[R]]:
        if self._declarations.closed:
            raise QueueClosed(f"the app of task {self.name!r} is closed; nothing was added")
        return await enqueue(self._declarations, jobs, result_type=self.result_type, within=self._within)


def _arguments(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(call, tuple):
        return call, {}
    if isinstance(call, dict):
        return (), call
    return (call,), {}


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations that JSON values must be turned into; plain JSON types need nothing."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        # A name that cannot be resolved (imported for type checkers only) just stays as JSON.
        return {}
    variadic = {
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    return {name: hint for name, hint in hints.items() if hint not in _JSON_TYPES and name not in variadic}
