"""App: tasks, limits and workers around one store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Never, ParamSpec, Protocol, TypeVar, cast, overload

from paceline.checks import check_count, check_name, check_optional_name, check_text
from paceline.clock import NEVER, from_datetime, to_datetime
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, refuse_unknown, require
from paceline.job import Job
from paceline.lifecycle.actions import StoreActions
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.finish import MAX_RETURNS
from paceline.lifecycle.lags import lags_under
from paceline.lifecycle.run import Isolation
from paceline.limiter import Limiter
from paceline.limits import Backoff, GroupLimits, Kind, Limit, Unlimited
from paceline.limits.composite import check_kind, simplified
from paceline.limits.delay import MICROSECOND
from paceline.limits.rate import guard_of
from paceline.options import JobOptions, RetryDelay, Unique
from paceline.queue import Queue
from paceline.stores import shared_store
from paceline.stores.interface import Hold, Lag, Override, Store
from paceline.task import Task
from paceline.text import MAX_REASON
from paceline.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

WORKER_OPTIONS = "queues, concurrency, workers, limiter, group, lease, max_returns, name or grace"
FREE_NAMES = ("jobqueue.limiter", "jobqueue.limiter.null")
"""Limiter names that mean "no limit" unless the app declares them."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """How full a limit is: `used` of `allowed`, held or not, when the next start is possible, how many wait."""

    kind: Kind
    used: int
    allowed: int | None
    held_until: datetime | None
    next_start_at: datetime | None
    waiting: int
    guard: timedelta = timedelta()
    """How much longer than `per` a start is counted: the shortest of its rates; 0 without one."""
    open: int = 0
    """The cost of late starts whose handlers have not begun yet; `used` counts it."""
    lags: dict[str, Lag] = field(default_factory=dict)
    """How long after their starts the handlers of each task begin (microseconds), and how many began late."""


class TaskDecorator(Protocol):
    """What `@app.task(...)` is: it keeps the signature of the function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...


class App:
    """Tasks, limits and workers around one store.

    `app = App("sqlite:///jobs.db")`, `app.limit("email", Rate(120, per="1m"), tasks=["send_email"])`, `@app.task()`.
    """

    def __init__(
        self, url: str | Store = "memory://", *, namespace: str | None = None, lifespan: Lifespan | None = None
    ) -> None:
        self.store: Store = shared_store(url, namespace=namespace)
        self._declarations = Declarations(self.store, shares=True)
        self._actions = StoreActions(self._declarations)
        self._lifespan = lifespan
        self._limiters: dict[str, Limiter] = {}
        self._entered: list[None] = []
        """One entry for each `async with app` that has not ended: adding and removing needs no lock."""
        self.tasks: dict[str, Task[Any, Any, Any]] = {}

    def __repr__(self) -> str:
        return f"<App {self.store!r}: {len(self.tasks)} tasks, {len(self._declarations.declared)} limits>"

    # tasks

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        attempts: int = 1,
        retry_delay: RetryDelay | None = None,
        timeout: Duration | None = None,
        priority: int = 0,
        cost: int | dict[str, int] = 1,
        unique: Unique | None = None,
        isolation: Isolation = "thread",
        keep: Duration | None = "7d",
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        isolation: Isolation = "thread",
        **more: Any,
    ) -> Any:
        """Make a task of a function: `@app.task(attempts=3, retry_delay="10s")`."""
        options = cast(JobOptions, more)
        require(isolation in ("thread", "process"), "isolation", isolation, '"thread" or "process"')

        def decorate(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            require(callable(function), "task", function, "a function")
            known = name if name is not None else getattr(function, "__name__", None)
            require(known is not None, "name", known, f"a name for {function!r}, which has none of its own")
            task: Task[Any, Any, Any] = Task(
                function,
                self._declarations,
                name=known or "",
                queue=queue,
                options=options,
                isolation=isolation,
            )
            if task.name in self.tasks:
                raise ConfigError(
                    f"task {task.name!r} exists already; give one of the two functions another name with name=",
                    option="name",
                    value=task.name,
                )
            self.tasks[task.name] = task
            return task

        return decorate if function is None else decorate(function)

    def queue(self, name: str = "default", *, limits: Iterable[Limit | Kind] = ()) -> Queue:
        """A queue of this app's store."""
        return Queue(name, store=self.store, limits=limits, declarations=self._declarations)

    async def get(self, job_id: str) -> Job[Any] | None:
        """The job of this id, in whatever queue."""
        check_name(job_id, option="job_id")
        store = await self._declarations.ready()
        found = await store.get([job_id])
        if not found:
            return None
        task = self.tasks.get(found[0].task)
        return Job(found[0], self._actions, None if task is None else task.result_type)

    def worker(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = 10,
        workers: int = 1,
        limiter: object = None,
        group: GroupLimits | None = None,
        lease: Duration = "30s",
        max_returns: int = MAX_RETURNS,
        name: str | None = None,
        grace: Duration = "25s",
        **unknown: Never,
    ) -> Worker:
        """A worker for this app's tasks; with `workers=3` three of them in this process, each with its own limiter."""
        batch = cast(dict[str, object], unknown).pop("batch", None)
        require(batch is None, "batch", batch, "no batch for tasks: use Worker(handler)")
        refuse_unknown(unknown, "app.worker", WORKER_OPTIONS)
        workers = check_count(workers, option="workers")
        named = queues is None or (isinstance(queues, Iterable) and not isinstance(queues, str))
        require(named, "queues", queues, "a list of names")
        names = sorted({task.queue for task in self.tasks.values()} or {"default"}) if queues is None else list(queues)
        crew = [
            Worker(
                names,
                None,
                store=self.store,
                concurrency=concurrency,
                limiter=limiter,
                group=group,
                lease=lease,
                max_returns=max_returns,
                name=name,
                grace=grace,
                calls=_Calls(self.tasks),
                declarations=self._declarations,
            )
            for _ in range(workers)
        ]
        leader = crew[0]
        leader.lead(crew[1:], around=None if self._lifespan is None else lambda: cast(Lifespan, self._lifespan)(self))
        return leader

    # limits

    def limit(
        self,
        name: str,
        kind: Kind,
        *,
        queues: Iterable[str] | None = None,
        tasks: Iterable[str | Task[Any, Any, Any]] | None = None,
        by: Literal["group"] | None = None,
        overrides: Mapping[str, Kind] | None = None,
        backoff: Backoff | None = None,
    ) -> Limit:
        """Declare a limit for all workers: `app.limit("email", Rate(120, per="1m"), tasks=["send_email"])`."""
        limit = Limit(name, kind, queues=queues, tasks=tasks, by=by, overrides=overrides, backoff=backoff)
        return self._declarations.add(limit)

    async def drop_limit(self, name: str) -> bool:
        """Forget a limit; False when there was none."""
        check_name(name, option="name")
        store = await self._declarations.ready()
        self._declarations.forget(name)
        return await store.drop_limit(name)

    def limiter(self, name: str, kind: Kind | None = None, *, backoff: Backoff | None = None) -> Limiter:
        """The limit of this name for any code; declared here when a kind is given."""
        declared = self._declarations.declared.get(check_name(name, option="name"))
        if kind is None and declared is None:
            if name in FREE_NAMES:
                kind = Unlimited()
            elif name.startswith("jobqueue.limiter."):
                raise ConfigError(
                    f"limiter {name!r} is not declared; declare it with app.limit({name!r}, kind)", option="name"
                )
        key = name
        if key not in self._limiters or kind is not None:
            self._limiters[key] = Limiter(
                name, kind, store=self.store, backoff=backoff, declarations=self._declarations
            )
        return self._limiters[key]

    async def limit_state(self, name: str, group: str | None = None) -> LimitState:
        """How full a limit (or its key for a group) is, and who waits."""
        name, group = check_name(name, option="name"), check_optional_name(group, option="group")
        store = await self._declarations.ready()
        usage = await store.usage(name, group)
        limits = {limit.name: limit for limit in await store.limits()}
        return LimitState(
            kind=usage.kind,
            used=usage.used,
            allowed=usage.allowed,
            held_until=to_datetime(usage.hold_until) if usage.hold_until > usage.now else None,
            next_start_at=None if usage.opens_at >= NEVER else to_datetime(max(usage.opens_at, usage.now)),
            waiting=usage.waiting,
            guard=guard_of(usage.kind, store.least_guard) * MICROSECOND,
            open=usage.open,
            lags=lags_under(limits[name], await store.workers()) if name in limits else {},
        )

    async def hold(
        self,
        name: str,
        *,
        until: datetime | None = None,
        for_: Duration | None = None,
        group: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Let nobody start under a limit until a time or for a while; a hold only grows until it is released."""
        require((until is None) != (for_ is None), "until", until, "either until or for_")
        hold = Hold(
            limit=check_name(name, option="name"),
            group=check_optional_name(group, option="group"),
            until=None if until is None else from_datetime(until, option="until"),
            for_=None if for_ is None else parse_duration(for_, option="for_"),
            reason=check_text(reason, option="reason", most=MAX_REASON),
        )
        await (await self._declarations.ready()).hold([hold])

    async def release(self, name: str, *, group: str | None = None) -> None:
        """Lift the hold of a limit."""
        name, group = check_name(name, option="name"), check_optional_name(group, option="group")
        await (await self._declarations.ready()).release(name, group)

    async def override(
        self,
        name: str,
        kind: Kind | None,
        *,
        group: str | None = None,
        reason: str | None = None,
        expires: Duration | datetime | None = None,
    ) -> None:
        """An operator's numbers: they win over what code declares until lifted (`kind=None`) or expired."""
        name, group = check_name(name, option="name"), check_optional_name(group, option="group")
        reason = check_text(reason, option="reason", most=MAX_REASON)
        store = await self._declarations.ready()
        if kind is None:
            await store.lift(name, group)
            return
        kind = simplified(check_kind(kind, option="kind"))
        at = from_datetime(expires, option="expires") if isinstance(expires, datetime) else None
        after = parse_duration(expires, option="expires") if expires is not None and at is None else None  # type: ignore[arg-type]
        await store.override(Override(limit=name, kind=kind, group=group, reason=reason, expires_at=at), after)

    # life

    async def close(self) -> None:
        """Accept no more jobs through this app and let go of the store, until the app is entered again."""
        self._entered.clear()
        await self._declarations.close()

    async def __aenter__(self) -> App:
        """Open the app, any number of times; blocks may lie in each other, and the last one to end closes it."""
        if self._declarations.closed:
            self._declarations.reopen()
        self._entered.append(None)
        try:
            await self._declarations.ready()
        except BaseException:
            self._entered.pop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._entered:
            self._entered.pop()
        if not self._entered:
            await self.close()


class _Calls(Mapping[str, Any]):
    """The app's tasks as a worker calls them; tasks that are added later are known at once."""

    def __init__(self, tasks: dict[str, Task[Any, Any, Any]]) -> None:
        self._tasks = tasks
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._tasks[name].call
        return self._made[name]

    def __iter__(self) -> Any:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)
