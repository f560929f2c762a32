"""Task: a function, its options, and the calls that put it into a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from paceline.argument_types import Misfit
from paceline.arguments import Arguments
from paceline.checks import check_name
from paceline.errors import QueueClosed, WrongArguments, require
from paceline.job import Job, NewJob
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.enqueue import enqueue
from paceline.lifecycle.portal import run_here, run_sync
from paceline.lifecycle.run import Call, Isolation, check_importable, is_coroutine_function
from paceline.options import JobOptions, new_job

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


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
        arguments: Arguments | None = None,
    ) -> None:
        self.function = function
        self.name = check_name(name, option="name")
        self.queue = check_name(queue, option="queue")
        self.options = options
        self.isolation = isolation
        self._declarations = declarations
        self._within = within
        self.arguments = arguments or Arguments(function)
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
        require(
            isinstance(calls, Iterable), "calls", calls, "a list of calls: tuples, dictionaries or single arguments"
        )
        jobs = [self._new_job(*_arguments(call)) for call in calls]
        return await self._enqueue(jobs) if jobs else []

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` for code without an event loop."""
        job = self._new_job(args, kwargs)
        if self._within is not None:
            return run_here(lambda within: self._enqueue([job], within), name="enqueue", within=self._within)[0]
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
            within=self._within if within is None else within,
            arguments=self.arguments,
        )

    @property
    def result_type(self) -> Any:
        """What its results are converted to; None where JSON stays JSON."""
        return self.arguments.result.type

    @property
    def call(self) -> Call:
        """How a worker calls it."""
        importable = self.function if self.isolation == "process" else None
        pack = self.arguments.result.pack
        return Call(self.call_with, is_coroutine_function(self.function), self.isolation, importable, pack)

    def call_with(self, job: Job[Any]) -> Any:
        """Call the function with the arguments that a job carries, as the types its signature asks for."""
        try:
            args, kwargs = self.arguments.unpack(job.data)
        except Misfit as misfit:
            raise Misfit(f"the job's data does not fit task {self.name!r}: {misfit}") from misfit.__cause__
        return self.function(*args, **kwargs)

    def _new_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        try:
            data = self.arguments.pack(args, kwargs)
        except WrongArguments as error:
            raise WrongArguments(f"task {self.name!r}: {error}") from error.__cause__
        maximum = self._declarations.store.max_payload
        return new_job(self.queue, self.name, data, self.options, max_payload=maximum, checked=True)

    async def _enqueue(self, jobs: list[NewJob], within: object = None) -> list[Job[R]]:
        if self._declarations.closed:
            raise QueueClosed(
                f"the app of task {self.name!r} is closed and nothing was added; enter it again with `async with app`"
            )
        return await enqueue(self._declarations, jobs, result_type=self.result_type, within=within or self._within)


def _arguments(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(call, tuple):
        return call, {}
    if isinstance(call, dict):
        return (), call
    return (call,), {}
