"""Worker: claims as many jobs as it has slots and limits allow, runs them, and writes how they ended."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from heapq import heappop, heappush
from typing import Any, Literal

from paceline.checks import check_count, check_name
from paceline.clock import NEVER, SECOND, Micros
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, StoreError, require
from paceline.job import Job, JobRecord
from paceline.lifecycle.actions import StoreActions
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.finish import (
    MAX_RETURNS,
    Cancelled,
    HandedBack,
    Raised,
    RunEnd,
    Succeeded,
    TimedOut,
    decide,
)
from paceline.lifecycle.pace import Allowance, Pace, make_pace
from paceline.lifecycle.process import Children
from paceline.lifecycle.run import Call, Isolation, run_in_loop, run_in_process, run_in_thread
from paceline.limits import GroupLimits, Limit, Rate
from paceline.options import new_id
from paceline.stores import shared_store
from paceline.stores.interface import Ask, Claim, Extended, Finish, Lease, Listener, Store, WorkerRecord
from paceline.upkeep.heartbeat import Heartbeat
from paceline.upkeep.prune import prune_forever
from paceline.verdicts import RateLimited

log = logging.getLogger("paceline.worker")

INSURANCE: Micros = 30 * SECOND
"""No wait is longer, in case a wake-up gets lost; how often that was needed is counted."""


class Run:
    """One call of a handler: for one job, or for a batch that shares a slot."""

    __slots__ = ("call", "deadline", "jobs", "slots", "stopped_by", "task", "timeout")

    def __init__(self, jobs: list[Job[Any]], call: Call) -> None:
        self.jobs = jobs
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.stopped_by: Literal["timeout", "cancel", "lost", "stop"] | None = None
        times = [job.record.timeout for job in jobs if job.record.timeout is not None]
        self.timeout: Micros | None = min(times) if times else None

    def stop(self, reason: Literal["timeout", "cancel", "lost", "stop"]) -> None:
        """Cancel the handler; the first reason counts. A thread cannot be stopped: it is told and waited for."""
        if self.stopped_by is None:
            self.stopped_by = reason
            if self.task is not None and (self.call.is_async or self.call.isolation == "process" or reason == "stop"):
                self.task.cancel()


class Worker:
    """Claims, runs, finishes: `Worker("webhooks", deliver, store=store, concurrency=5, limiter=Rate(20, per="1s"))`.

    `await worker.run()` until `stop()`, or `async with worker:` in the background.
    """

    def __init__(
        self,
        queue: str | Sequence[str],
        handler: Callable[..., Any] | None,
        *,
        store: str | Store,
        concurrency: int = 1,
        limiter: object = None,
        group: GroupLimits | None = None,
        batch: int | None = None,
        lease: Duration = "30s",
        isolation: Isolation = "thread",
        max_returns: int = MAX_RETURNS,
        name: str | None = None,
        calls: Mapping[str, Call] | None = None,
        declarations: Declarations | None = None,
    ) -> None:
        names = (queue,) if isinstance(queue, str) else tuple(queue)
        require(bool(names), "queue", queue, "a name or several")
        self.queues = tuple(check_name(each, option="queue") for each in names)
        self.concurrency = check_count(concurrency, option="concurrency")
        self.batch = None if batch is None else check_count(batch, option="batch")
        self.lease = parse_duration(lease, option="lease")
        self.max_returns = check_count(max_returns, option="max_returns")
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"
        self._calls = calls
        self._call = None if handler is None else Call.of(handler, isolation)
        require(handler is not None or calls is not None, "handler", handler, "a function that takes a job")
        require(not (self.batch and isolation == "process"), "batch", batch, "no batch with isolation='process'")
        self._store = shared_store(store)
        self._declarations = declarations or Declarations(self._store)
        require(group is None or isinstance(group, GroupLimits), "group", group, "GroupLimits(concurrency, limiter)")
        if group is not None:
            for each in self.queues:
                self._declarations.add(Limit(f"group:{each}", group.kind, queues=[each], by="group"))
        self._pace: Pace = make_pace(limiter, self._store)
        self._actions = StoreActions(self._declarations)
        self._runs: dict[Run, None] = {}
        self._leases: dict[str, tuple[Run, Lease]] = {}
        self._ended: list[Finish] = []
        self._deadlines: list[tuple[Micros, int, Run]] = []
        self._listener: Listener | None = None
        self._stopping = False
        self._paused = False
        self._done: asyncio.Event | None = None
        self._background: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._children = Children()
        self._guard: Micros = NEVER
        self._listens = asyncio.Event()
        self._crew: list[Worker] = []
        self._around: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._known: frozenset[str] | None = None
        self.insurance_wakeups = 0
        """How often the bound of a wait, and not a wake-up, brought work: a lost wake-up each."""

    def __repr__(self) -> str:
        return f"<Worker {self.name} {', '.join(self.queues)}: {len(self._runs)} of {self.concurrency} slots busy>"

    # life

    def lead(self, crew: list[Worker], around: Callable[[], AbstractAsyncContextManager[Any]] | None) -> None:
        """Run together with other workers of this process, inside what the app sets up around them."""
        self._crew = crew
        self._around = around

    async def run(self, until_empty: bool = False) -> None:
        """Work until `stop()`, or, with `until_empty`, until nothing is waiting, delayed or active."""
        async with self._around() if self._around is not None else nullcontext():
            if not self._crew:
                await self._run_alone(until_empty)
                return
            async with asyncio.TaskGroup() as together:
                for worker in (self, *self._crew):
                    together.create_task(worker._run_alone(until_empty))

    async def _run_alone(self, until_empty: bool) -> None:
        if self._listener is not None:
            raise ConfigError("this worker runs already; make a second one to run two", option="run")
        store = await self._declarations.ready()
        self._stopping = False
        self._done = asyncio.Event()
        listener = self._listener = store.listen(self.queues, self.name)
        self._listens.set()
        heartbeat = Heartbeat(store, self.name, self.lease, self._held, self._heard, self._lose_all)
        await store.register(WorkerRecord(id=self.name, queues=self.queues, tasks=self._tasks()))
        limits = await store.limits()
        self._guard = _smallest_guard(limits)
        self._warn_of_unknown_tasks(limits)
        heartbeat.start()
        pruning = asyncio.create_task(prune_forever(store))
        try:
            await self._work(store, listener, heartbeat, until_empty)
            await self._wind_down(store, listener)
        except BaseException:
            self._stop_runs()
            await asyncio.shield(self._hand_back(store))
            raise
        finally:
            pruning.cancel()
            await heartbeat.stop()
            await store.unregister(self.name)
            listener.close()
            self._listener = None
            self._children.close()
            if self._threads is not None:
                self._threads.shutdown(wait=False)
                self._threads = None
            self._done.set()

    async def stop(self, grace: Duration = "25s") -> None:
        """Claim nothing more, give handlers the grace, then hand their jobs back without using an attempt."""
        await asyncio.gather(self._stop_alone(grace), *(worker._stop_alone(grace) for worker in self._crew))

    async def _stop_alone(self, grace: Duration) -> None:
        until = self._store.clock.now() + parse_duration(grace, option="grace", zero=True)
        listener, done = self._listener, self._done
        self._stopping = True
        if listener is None or done is None:
            return
        listener.event.set()
        if not await self._store.clock.wait(done, until):
            self._stop_runs()
            listener.event.set()
            await done.wait()

    def pause(self) -> None:
        """Claim nothing until `resume()`; only this worker, and only as long as it lives."""
        for worker in (self, *self._crew):
            worker._paused = True

    def resume(self) -> None:
        """Go on claiming."""
        for worker in (self, *self._crew):
            worker._paused = False
            if worker._listener is not None:
                worker._listener.event.set()

    async def __aenter__(self) -> Worker:
        await self._declarations.ready()
        self._background = asyncio.create_task(self.run())
        # The worker listens before the body goes on, so that nothing added there can be missed.
        listening = asyncio.gather(*(worker._listens.wait() for worker in (self, *self._crew)))
        either: list[asyncio.Future[Any]] = [self._background, listening]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._background.done():
            await self._background
        return self

    async def __aexit__(self, *error: object) -> None:
        background, self._background = self._background, None
        if background is not None:
            await self.stop()
            await background

    # the loop

    async def _work(self, store: Store, listener: Listener, heartbeat: Heartbeat, until_empty: bool) -> None:
        clock = store.clock
        queues = self.queues
        while not self._stopping:
            listener.event.clear()
            if listener.heartbeat_due:
                listener.heartbeat_due = False
                await heartbeat.beat()
            self._stop_overdue(clock.now())
            claim, until = await self._claim(store, queues)
            if claim is not None and len(queues) > 1:
                # The next claim begins with another queue, so that a single slot serves all of them.
                queues = queues[1:] + queues[:1]
            if until_empty and await self._is_empty(store):
                return
            until = min(until, self._deadlines[0][0] if self._deadlines else NEVER)
            if until <= clock.now():
                await asyncio.sleep(0)
                continue
            bound = clock.now() + INSURANCE
            woken = await clock.wait(listener.event, min(until, bound))
            if not woken and bound < until:
                claim, _ = await self._claim(store, queues)
                self.insurance_wakeups += bool(claim and claim.jobs)

    async def _claim(self, store: Store, queues: tuple[str, ...]) -> tuple[Claim | None, Micros]:
        """Write what ended, ask for what fits, begin what came; gives the instant to look again."""
        free = self.concurrency - len(self._runs)
        if free <= 0 or self._paused:
            await self._flush(store)
            return None, NEVER
        async with self._pace.turn():
            allowance = await self._pace.allows(free * (self.batch or 1), store.clock.now())
            if allowance.slots <= 0:
                await self._flush(store)
                return None, allowance.until
            claim = await self._ask(store, queues, allowance)
            if claim is None:
                return None, store.clock.now() + SECOND
            if claim.jobs:
                await self._pace.started(claim.jobs, store.clock.now())
        self._begin_all(claim.jobs)
        if claim.needs_room:
            return claim, self._pace.wait_for_room(claim.needs_room, claim.now)
        if len(claim.jobs) >= allowance.slots:
            # All that was asked for came: there may be more.
            return claim, claim.now if len(self._runs) < self.concurrency else NEVER
        return claim, claim.ask_again_at

    async def _ask(self, store: Store, queues: tuple[str, ...], allowance: Allowance) -> Claim | None:
        ended, self._ended = self._ended, []
        ask = Ask(
            queues=queues,
            slots=allowance.slots,
            worker=self.name,
            lease=self.lease,
            claim_id=new_id(),
            tasks=self._tasks(),
            also=self._pace.also,
            room=allowance.room,
        )
        try:
            claim = await store.claim(ask, ended)
        except StoreError as error:
            self._ended = ended + self._ended
            log.warning("worker %s cannot claim: %s; it goes on when the store is back", self.name, error)
            return None
        self._written(ended, claim.lost)
        return claim

    async def _flush(self, store: Store) -> None:
        """Write the ends of runs when no claim carries them."""
        if self._ended:
            ended, self._ended = self._ended, []
            try:
                lost = await store.finish(ended)
            except StoreError as error:
                self._ended = ended + self._ended
                log.warning("worker %s cannot write: %s; it tries again", self.name, error)
                await store.clock.wait(asyncio.Event(), store.clock.now() + SECOND)
                return
            self._written(ended, lost)

    def _written(self, ended: Sequence[Finish], lost: Sequence[str]) -> None:
        for finish in ended:
            self._leases.pop(finish.id, None)
        for job_id in lost:
            log.warning("job %s: its lease was lost, what its handler did here is not recorded", job_id)

    # runs

    def _tasks(self) -> frozenset[str] | None:
        if self._calls is None:
            return None
        if self._known is None or len(self._known) != len(self._calls):
            self._known = frozenset(self._calls)
        return self._known

    def _warn_of_unknown_tasks(self, limits: Sequence[Limit]) -> None:
        for limit in limits if self._calls is not None else ():
            missing = sorted((limit.tasks or frozenset()) - (self._tasks() or frozenset()))
            if missing and (limit.queues is None or not limit.queues.isdisjoint(self.queues)):
                log.warning("limit %r names tasks that this worker does not know: %s", limit.name, ", ".join(missing))

    def _call_for(self, task: str) -> Call:
        if self._calls is not None:
            return self._calls[task]
        assert self._call is not None
        return self._call

    def _begin_all(self, records: list[JobRecord]) -> None:
        actions = self._actions
        jobs: list[Job[Any]] = [Job(record, actions) for record in records]
        if self.batch is None:
            for job in jobs:
                self._begin([job])
        else:
            for first in range(0, len(jobs), self.batch):
                self._begin(jobs[first : first + self.batch])

    def _begin(self, jobs: list[Job[Any]]) -> None:
        run = Run(jobs, self._call_for(jobs[0].task))
        self._runs[run] = None
        for job in jobs:
            record = job.record
            self._leases[record.id] = (run, Lease(record.id, record.fence))
        if run.timeout is not None:
            heappush(self._deadlines, (self._store.clock.now() + run.timeout, id(run), run))
        if self._guard < NEVER:
            self._measure_lag(jobs[0].record)
        self._store.clock.handler_begins()
        run.task = asyncio.create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        """Run to the end, whatever the end is; only then the slot is free."""
        try:
            end = await self._execute(run)
        except asyncio.CancelledError as error:
            # Cancelled by us for a reason that was noted, or by the handler's own code.
            end = Raised(error)
        end = self._why_it_ended(run, end)
        if run.stopped_by != "lost" or isinstance(end, Succeeded):
            await self._record(run, end)
        for job in run.jobs:
            if run.stopped_by == "lost":
                self._leases.pop(job.id, None)
            await self._pace.ended(job.id)
        del self._runs[run]
        self._store.clock.handler_ended()
        if self._listener is not None:
            self._listener.event.set()

    async def _execute(self, run: Run) -> RunEnd:
        call = run.call
        subject: Any = run.jobs[0] if self.batch is None else run.jobs
        if call.isolation == "process":
            return await run_in_process(call, run.jobs[0], self._children)
        if call.is_async:
            return await run_in_loop(call, subject)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, thread_name_prefix="paceline")
        return await run_in_thread(call, subject, self._threads)

    def _why_it_ended(self, run: Run, end: RunEnd) -> RunEnd:
        if run.stopped_by is None or (isinstance(end, Succeeded) and run.stopped_by in ("stop", "lost")):
            return end
        match run.stopped_by:
            case "timeout":
                return TimedOut(run.timeout or 0)
            case "cancel":
                return Cancelled()
            case _:
                return HandedBack()

    async def _record(self, run: Run, end: RunEnd) -> None:
        """Note for each job of the run what the store is to write."""
        ends = [end] if self.batch is None else _batch_ends(end, len(run.jobs))
        for job, its_end in zip(run.jobs, ends, strict=True):
            limits: Sequence[Limit] = ()
            if isinstance(its_end, Raised):
                if isinstance(its_end.error, RateLimited):
                    limits = await self._store.limits()
                else:
                    log.info("job %s (%s) raised", job.id, job.task, exc_info=its_end.error)
            self._ended.append(
                decide(job.record, its_end, jitter=random.random(), limits=limits, max_returns=self.max_returns)
            )

    def _stop_overdue(self, now: Micros) -> None:
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2] not in self._runs):
            run = heappop(self._deadlines)[2]
            if run in self._runs:
                run.stop("timeout")

    # leases

    def _held(self) -> list[Lease]:
        return [lease for _, lease in self._leases.copy().values()]

    def _heard(self, heard: Extended) -> None:
        for job_id in heard.lost:
            found = self._leases.get(job_id)
            if found is not None and not any(finish.id == job_id for finish in self._ended):
                log.warning("job %s: its lease was lost; its handler is stopped", job_id)
                found[0].stop("lost")
        asked = set(heard.cancel)
        for job_id in asked:
            found = self._leases.get(job_id)
            if found is not None:
                run = found[0]
                # A batch goes on while somebody still wants one of its jobs.
                if all(job.id in asked for job in run.jobs):
                    for job in run.jobs:
                        job.mark_cancelled()
                    run.stop("cancel")

    def _lose_all(self) -> None:
        for run in list(self._runs):
            run.stop("lost")

    # the end

    async def _is_empty(self, store: Store) -> bool:
        if self._runs or self._ended:
            return False
        for queue in self.queues:
            counts = await store.counts(queue)
            if counts["waiting"] or counts["delayed"] or counts["active"]:
                return False
        return True

    async def _wind_down(self, store: Store, listener: Listener) -> None:
        """Wait for the handlers that still run; `stop` cancels them when its grace is over."""
        while self._runs:
            listener.event.clear()
            await self._flush(store)
            if not self._runs:
                break
            self._stop_overdue(store.clock.now())
            until = self._deadlines[0][0] if self._deadlines else NEVER
            await store.clock.wait(listener.event, until)
            if any(run.stopped_by == "stop" for run in self._runs):
                break
        await self._hand_back(store)

    def _stop_runs(self) -> None:
        for run in list(self._runs):
            run.stop("stop")

    async def _hand_back(self, store: Store) -> None:
        """Give cancelled handlers a moment to clean up; jobs that still run then are handed back regardless."""
        tasks = [run.task for run in self._runs if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=2)
        for run in list(self._runs):
            for job in run.jobs:
                self._ended.append(decide(job.record, HandedBack(), jitter=0.0))
        await self._flush(store)

    def _measure_lag(self, record: JobRecord) -> None:
        lag = self._store.clock.now() - (record.started_at or 0)
        if lag > self._guard:
            log.warning(
                "job %s began %d ms after its start: more than the guard of a limit (%d ms)",
                record.id,
                lag // 1000,
                self._guard // 1000,
            )


def _batch_ends(end: RunEnd, size: int) -> list[RunEnd]:
    """One end per job: a list of results is taken apart, everything else counts for all."""
    if not isinstance(end, Succeeded) or end.value is None:
        return [end] * size
    values = end.value
    if not isinstance(values, list | tuple) or len(values) != size:
        got = f"{len(values)} results" if isinstance(values, list | tuple) else f"{type(values).__name__}"
        problem = ConfigError(f"a batch handler returned {got} for {size} jobs: expected None or one result per job")
        return [Raised(problem)] * size
    return [Raised(value) if isinstance(value, BaseException) else Succeeded(value) for value in values]


def _smallest_guard(limits: Sequence[Limit]) -> Micros:
    guards = [
        round(part.guard.total_seconds() * SECOND)
        for limit in limits
        for part in limit.kind.parts()
        if isinstance(part, Rate) and part.guard
    ]
    return min(guards, default=NEVER)
