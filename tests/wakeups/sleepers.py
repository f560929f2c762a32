"""Who sleeps until somebody else does something: a worker, a limiter that waits, whoever waits for a job's end.

Each scenario puts a sleeper into a place of its own, a queue or a limit that nobody else uses, and names the deed that
gives it something to do. Nothing that the sleeper's own process does wakes it, and nobody has to be woken before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from paceline import Concurrency, Job, JobNotFound, Limiter, Queue, Rate, Worker
from paceline.limits import Kind, Limit
from paceline.stores.interface import Store

from .others import Other

SETTLED = 0.1
"""Seconds after which whoever went to sleep looks no more by itself; the first look of PostgreSQL comes after 0.03."""
_numbers = count(1)


@dataclass
class Trial:
    """A sleeper, and what wakes it: the deed is done once it sleeps soundly."""

    deed: str
    words: dict[str, Any]
    settles: float = SETTLED
    due_after: float = 0.0
    """Seconds between the deed and the instant at which there is something to do."""
    reacted: asyncio.Event = field(default_factory=asyncio.Event)
    at: float = 0.0

    def reacts(self) -> None:
        if not self.reacted.is_set():
            self.at = time.monotonic()
            self.reacted.set()


@dataclass
class Stage:
    """The store as the sleepers of one test have it, and somebody else."""

    store: Store
    other: Other
    busy_after: float = 0.1
    """Seconds after which others know that a worker without a free slot need not hear of new jobs."""

    def name(self, what: str) -> str:
        return f"{what} {next(_numbers)}"

    async def limit(self, queue: str, kind: Kind) -> None:
        """A limit of the queue's name on the queue."""
        await self.store.set_limits([Limit(queue, kind, queues=[queue])])

    @asynccontextmanager
    async def worker(self, queue: str, trial: Trial, **options: Any) -> AsyncIterator[Worker]:
        """A worker that reacts with the first job it starts, and that no insurance may bring to it."""

        async def handler(job: Job[Any]) -> None:
            trial.reacts()

        worker = Worker(queue, options.pop("handler", handler), store=self.store, **options)
        async with worker:
            yield worker
        assert worker.insurance_wakeups == 0

    @asynccontextmanager
    async def waits(self, trial: Trial, waiting: Any) -> AsyncIterator[None]:
        """Somebody who waits for something and reacts when it came."""

        async def wait() -> None:
            await waiting
            trial.reacts()

        task = asyncio.create_task(wait())
        try:
            yield
            if trial.reacted.is_set():
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


Scenario = Callable[[Stage], AbstractAsyncContextManager[Trial]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(make: Callable[[Stage], AsyncIterator[Trial]]) -> None:
    SCENARIOS[make.__name__] = asynccontextmanager(make)


# arrivals


@scenario
async def a_job_arrives(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("add", {"queue": queue, "job": queue})
    async with stage.worker(queue, trial):
        yield trial


@scenario
async def a_job_arrives_after_the_only_slot_was_taken_for_long(stage: Stage) -> AsyncIterator[Trial]:
    """By then everybody knows that nobody sleeps here, and has to learn that somebody does again."""
    queue = stage.name("line")
    trial = Trial("add", {"queue": queue, "job": queue})
    free = asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        if job.id == queue:
            trial.reacts()
        else:
            await asyncio.sleep(stage.busy_after)
            free.set()

    await stage.other.does("add", queue=queue, job=f"{queue}, long")
    async with stage.worker(queue, trial, handler=handler, concurrency=1):
        await asyncio.wait_for(free.wait(), 30)
        yield trial


@scenario
async def a_delayed_job_arrives(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("add", {"queue": queue, "job": queue, "delay": 150_000}, due_after=0.15)
    async with stage.worker(queue, trial):
        yield trial


@scenario
async def a_delayed_job_is_promoted(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("move", {"job": queue, "move": "promote"})
    await stage.other.does("add", queue=queue, job=queue, delay=3_600_000_000)
    async with stage.worker(queue, trial):
        yield trial


@scenario
async def all_delayed_jobs_are_promoted(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("move_all", {"queue": queue, "state": "delayed", "move": "promote"})
    await stage.other.does("add", queue=queue, job=queue, delay=3_600_000_000)
    async with stage.worker(queue, trial):
        yield trial


@scenario
async def a_failed_job_is_retried(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("move", {"job": queue, "move": "retry"})
    await stage.other.does("add", queue=queue, job=queue)
    await stage.other.does("take", queue=queue)
    await stage.other.does("end", queue=queue, outcome="failed")
    async with stage.worker(queue, trial):
        yield trial


@scenario
async def a_job_is_handed_back(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("end", {"queue": queue, "outcome": "released"})
    await stage.other.does("add", queue=queue, job=queue)
    await stage.other.does("take", queue=queue)
    async with stage.worker(queue, trial):
        yield trial


# pauses


def _resumed(name: str, **part: str) -> None:
    async def resumed(stage: Stage) -> AsyncIterator[Trial]:
        queue = stage.name("line")
        trial = Trial("pause", {"queue": queue, "paused": False, **part})
        await stage.other.does("pause", queue=queue, paused=True, **part)
        await stage.other.does("add", queue=queue, job=queue, group="acme")
        async with stage.worker(queue, trial):
            yield trial

    resumed.__name__ = name
    scenario(resumed)


_resumed("a_queue_is_resumed")
_resumed("a_task_is_resumed", task="work")
_resumed("a_group_is_resumed", group="acme")


# limits


def _freed(name: str, deed: str, kind: Kind, before: list[str], by: str | None = None) -> None:
    """Jobs wait under a limit of their queue, after somebody did a few things, and something sets one free."""

    async def freed(stage: Stage) -> AsyncIterator[Trial]:
        queue = stage.name("line")
        of = {"end": {"queue": queue}, "take": {"queue": queue}}
        trial = Trial(deed, of.get(deed, {"limit": queue}))
        await stage.store.set_limits([Limit(queue, kind, queues=[queue], by=by)])
        for place, what in enumerate(before):
            job = {"queue": queue, "job": f"{queue}, {place}", "group": "acme" if by else None}
            await stage.other.does(what, **(job if what == "add" else of.get(what, {"limit": queue})))
        async with stage.worker(queue, trial):
            yield trial

    freed.__name__ = name
    scenario(freed)


_freed("a_slot_is_freed", "end", Concurrency(1), ["add", "add", "take"])
_freed("a_slot_of_a_group_is_freed", "end", Concurrency(1), ["add", "add", "take"], by="group")
_freed("a_permit_that_a_job_waits_for_is_given_back", "give_back", Concurrency(1), ["take_permit", "add"])
_freed("a_hold_is_released", "release", Concurrency(5), ["hold", "add"])


@scenario
async def a_slot_that_another_queue_shares_is_freed(stage: Stage) -> AsyncIterator[Trial]:
    queue, elsewhere = stage.name("line"), stage.name("other line")
    trial = Trial("end", {"queue": elsewhere})
    await stage.store.set_limits([Limit(queue, Concurrency(1), queues=[queue, elsewhere])])
    await stage.other.does("add", queue=elsewhere, job=elsewhere)
    await stage.other.does("add", queue=queue, job=queue)
    await stage.other.does("take", queue=elsewhere)
    async with stage.worker(queue, trial):
        yield trial


def _opened(name: str, deed: str, **words: Any) -> None:
    """A window of an hour is full, and somebody makes room in it."""

    async def opened(stage: Stage) -> AsyncIterator[Trial]:
        queue = stage.name("line")
        of_queue = {"queue": queue} if deed == "declare" else {}
        trial = Trial(deed, {"limit": queue, **words, **of_queue})
        await stage.limit(queue, Rate(1 if deed != "lift" else 5, per="1h"))
        if deed == "lift":
            await stage.other.does("override", limit=queue, most=1)
        await stage.other.does("add", queue=queue, job=f"{queue}, first")
        await stage.other.does("take", queue=queue)
        await stage.other.does("add", queue=queue, job=f"{queue}, second")
        async with stage.worker(queue, trial):
            yield trial

    opened.__name__ = name
    scenario(opened)


_opened("a_limit_is_raised", "declare", most=2)
_opened("an_operator_raises_a_limit", "override", most=2)
_opened("an_operators_numbers_are_lifted", "lift")
_opened("a_limit_is_dropped", "drop")
_opened("a_limit_is_cleared", "clear")


# limiters


@asynccontextmanager
async def _waits_for_a_permit(stage: Stage, trial: Trial, limit: str) -> AsyncIterator[None]:
    async def acquire() -> None:
        async with Limiter(limit, store=stage.store).acquire(timeout="20s"):
            trial.reacts()

    async with stage.waits(trial, acquire()):
        yield


@scenario
async def a_permit_that_a_limiter_waits_for_is_given_back(stage: Stage) -> AsyncIterator[Trial]:
    limit = stage.name("service")
    trial = Trial("give_back", {"limit": limit})
    await stage.store.set_limits([Limit.for_code(limit, Concurrency(1))])
    await stage.other.does("take_permit", limit=limit)
    async with _waits_for_a_permit(stage, trial, limit):
        yield trial


@scenario
async def a_job_frees_the_slot_that_a_limiter_waits_for(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("end", {"queue": queue})
    await stage.limit(queue, Concurrency(1))
    await stage.other.does("add", queue=queue, job=queue)
    await stage.other.does("take", queue=queue)
    async with _waits_for_a_permit(stage, trial, queue):
        yield trial


@scenario
async def an_operator_raises_the_limit_that_a_limiter_waits_for(stage: Stage) -> AsyncIterator[Trial]:
    limit = stage.name("service")
    trial = Trial("override", {"limit": limit, "most": 2})
    await stage.store.set_limits([Limit.for_code(limit, Rate(1, per="1h"))])
    await stage.other.does("take_permit", limit=limit)
    async with _waits_for_a_permit(stage, trial, limit):
        yield trial


# active jobs


@asynccontextmanager
async def _runs_until_cancelled(stage: Stage, trial: Trial, queue: str, slots: int) -> AsyncIterator[None]:
    begun = asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            trial.reacts()

    await stage.other.does("add", queue=queue, job=queue)
    async with stage.worker(queue, trial, handler=handler, concurrency=slots) as worker:
        await asyncio.wait_for(begun.wait(), 30)
        yield
        if not trial.reacted.is_set():
            await worker.stop(grace=0)


@scenario
async def an_active_job_is_cancelled(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("move", {"job": queue, "move": "cancel"})
    async with _runs_until_cancelled(stage, trial, queue, 2):
        yield trial


@scenario
async def an_active_job_of_a_full_worker_is_cancelled(stage: Stage) -> AsyncIterator[Trial]:
    """By then everybody knows that nobody here has a free slot."""
    queue = stage.name("line")
    trial = Trial("move", {"job": queue, "move": "cancel"}, settles=stage.busy_after)
    async with _runs_until_cancelled(stage, trial, queue, 1):
        yield trial


# ends of jobs


@scenario
async def the_result_of_a_job_is_written(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("end", {"queue": queue})
    await stage.other.does("add", queue=queue, job=queue)
    await stage.other.does("take", queue=queue)
    job = await Queue(queue, store=stage.store).get(queue)
    assert job is not None
    async with stage.waits(trial, job.result(timeout="20s")):
        yield trial


@scenario
async def a_job_that_somebody_waits_for_is_removed(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("move", {"job": queue, "move": "remove"})
    await stage.other.does("add", queue=queue, job=queue)
    job = await Queue(queue, store=stage.store).get(queue)
    assert job is not None

    async def gone() -> None:
        try:
            await job.result(timeout="20s")
        except JobNotFound:
            trial.reacts()

    async with stage.waits(trial, gone()):
        yield trial


@scenario
async def the_last_job_ends_where_a_worker_waits_for_an_empty_queue(stage: Stage) -> AsyncIterator[Trial]:
    queue = stage.name("line")
    trial = Trial("end", {"queue": queue})
    await stage.other.does("add", queue=queue, job=queue)
    await stage.other.does("take", queue=queue)

    async def nothing(job: Job[Any]) -> None: ...

    worker = Worker(queue, nothing, store=stage.store)
    async with stage.waits(trial, worker.run(until_empty=True)):
        yield trial
        if not trial.reacted.is_set():
            await worker.stop(grace=0)
