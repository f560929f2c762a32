"""The slots of one worker: the handlers that run now, their leases and their deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from typing import Any, Literal, TypeAlias

from paceline.clock import NEVER, Micros
from paceline.errors import ConfigError
from paceline.job import Job, JobActions, JobRecord
from paceline.lifecycle.ends import Ends, Refusal
from paceline.lifecycle.finish import (
    Cancelled,
    Crashed,
    HandedBack,
    Raised,
    RunEnd,
    Succeeded,
    TimedOut,
    decide,
)
from paceline.lifecycle.pace import Pace
from paceline.lifecycle.process import Children
from paceline.lifecycle.run import Call, run_in_loop, run_in_process, run_in_thread
from paceline.lifecycle.tell import log_start, logs_starts
from paceline.stores.interface import Extended, Finish, Lease, Outcome, Store
from paceline.text import is_a
from paceline.verdicts import RateLimited

log = logging.getLogger("paceline.worker")

Reason: TypeAlias = Literal["timeout", "cancel", "lost", "stop", "torn down"]

CLEAN_UP = 2.0
"""Real seconds that cancelled handlers get before their jobs are handed back regardless."""


class Run:
    """One call of a handler: for one job, or for a batch that shares a slot."""

    __slots__ = ("began", "call", "jobs", "stopped_by", "task", "timeout")

    def __init__(self, jobs: list[Job[Any]], call: Call) -> None:
        self.jobs = jobs
        self.call = call
        self.began = False
        self.task: asyncio.Task[None] | None = None
        self.stopped_by: Reason | None = None
        self.timeout: Micros | None = jobs[0].record.timeout
        if len(jobs) > 1:
            self.timeout = min((t for job in jobs if (t := job.record.timeout) is not None), default=None)

    def stop(self, reason: Reason) -> None:
        """Cancel the handler; the first reason counts. A thread cannot be stopped: it sees `job.cancelled`."""
        for job in self.jobs:
            job.mark_stopped()
        if self.stopped_by is not None:
            return
        self.stopped_by = reason
        stoppable = self.call.is_async or self.call.isolation == "process" or reason == "stop"
        # A task that is cancelled before its first step never runs at all, and could not free its slot.
        if self.task is not None and self.began and stoppable:
            self.task.cancel()


class Slots:
    """Runs handlers and gathers what the store is to write about them."""

    def __init__(
        self,
        store: Store,
        actions: JobActions,
        *,
        size: int,
        batch: int | None,
        handler: Call | None,
        calls: Mapping[str, Call] | None,
        pace: Pace,
        max_returns: int,
    ) -> None:
        self.size = size
        self.ends = Ends(store, self._written, max_returns=max_returns)
        """Ends of runs that are not written yet."""
        self.wake: Callable[[], None] = lambda: None
        """Called when a slot becomes free, and when there is an end to write."""
        self.torn_down: Callable[[], bool] = lambda: False
        """True once somebody else ends this worker: its task is cancelled, or its whole event loop."""
        self.guard: Micros = NEVER
        self._store = store
        self._actions = actions
        self._batch = batch
        self._handler = handler
        self._calls = calls
        self._pace = pace
        self._is_paced = type(pace) is not Pace
        self._runs: dict[Run, None] = {}
        self._leases: dict[str, tuple[Run, int]] = {}
        self._deadlines: list[tuple[Micros, int, Run]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._children = Children()

    @property
    def free(self) -> int:
        """How many handlers could begin now."""
        return self.size - len(self._runs)

    @property
    def busy(self) -> bool:
        """True while a handler runs or an end is not written."""
        return bool(self._runs or self.ends)

    @property
    def running(self) -> int:
        """How many handlers run."""
        return len(self._runs)

    # begin

    def begin(self, records: list[JobRecord]) -> None:
        """Call the handler for each job, or for each batch."""
        actions = self._actions
        if not self._leases.keys().isdisjoint(record.id for record in records):
            records = [record for record in records if not self._adopt(record)]
        jobs: list[Job[Any]] = [Job(record, actions) for record in records]
        step = self._batch or 1
        for first in range(0, len(jobs), step):
            self._begin(jobs[first : first + step])

    def _adopt(self, record: JobRecord) -> bool:
        """The store gave us anew a job that still runs here: its lease had ended, its run goes on under the new one."""
        found = self._leases.get(record.id)
        if found is None:
            return False
        run = found[0]
        self._leases[record.id] = (run, record.fence)
        if run in self._runs:
            next(job for job in run.jobs if job.id == record.id).renew(record)
        else:
            self.ends.adopt(record)
        log.warning("job %s: its lease ended while its handler ran here; the run goes on with a new one", record.id)
        return True

    def _begin(self, jobs: list[Job[Any]]) -> None:
        first = jobs[0].record
        call = self._handler if self._calls is None else self._calls[first.task]
        assert call is not None
        run = Run(jobs, call)
        self._runs[run] = None
        for job in jobs:
            self._leases[job.record.id] = (run, job.record.fence)
        clock = self._store.clock
        if run.timeout is not None:
            heappush(self._deadlines, (clock.now() + run.timeout, id(run), run))
        if self.guard < NEVER:
            self._measure_lag(first, clock.now())
        clock.handler_begins()
        if logs_starts():
            for job in jobs:
                log_start(job.record)
        run.task = asyncio.get_running_loop().create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        """Run to the end, whatever the end is; only then the slot is free."""
        run.began = True
        end: RunEnd = HandedBack()
        interrupt: KeyboardInterrupt | None = None
        if run.stopped_by is None:
            try:
                end = await (run_in_loop(run.call, run.jobs[0]) if self._is_simple(run.call) else self._execute(run))
            except KeyboardInterrupt as error:
                # It ends the program. If that is the job's doing, it must not do so for ever.
                interrupt = error
                end = Crashed("KeyboardInterrupt: it ended its worker")
            except BaseException as error:
                # Cancelled by us for a reason that was noted, by somebody else, or by the handler's own code.
                end = Raised(error)
        if isinstance(end, Raised) and run.stopped_by in (None, "stop") and self._is_torn_down(run):
            run.stopped_by = "torn down"
        if run.stopped_by is not None:
            end = _why_it_ended(run, end)
        if run in self._runs:
            try:
                self._record(run, end)
                if self._is_paced:
                    # Whoever limits this worker may take his time: the end does not wait for him.
                    self.wake()
                    await self._pace_ended(run)
            finally:
                self._release(run)
        if interrupt is not None:
            raise interrupt

    def _is_torn_down(self, run: Run) -> bool:
        """Somebody cancelled the handler's task along with the worker's: the handler did not fail."""
        return run.task is not None and run.task.cancelling() > 0 and self.torn_down()

    def _is_simple(self, call: Call) -> bool:
        return call.is_async and self._batch is None and call.isolation != "process"

    async def _execute(self, run: Run) -> RunEnd:
        call = run.call
        subject: Any = run.jobs[0] if self._batch is None else run.jobs
        if call.isolation == "process":
            return await run_in_process(call, run.jobs[0], self._children, self._store.max_payload)
        if call.is_async:
            return await run_in_loop(call, subject)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="paceline")
        return await run_in_thread(call, subject, self._threads)

    def _record(self, run: Run, end: RunEnd) -> None:
        """Note for each job of the run what the store is to write."""
        if self._batch is None and isinstance(end, Succeeded) and end.value is None:
            record = run.jobs[0].record
            self.ends.add(record, Finish(id=record.id, fence=record.fence, outcome=Outcome.COMPLETED))
            return
        ends = [end] if self._batch is None else batch_ends(end, len(run.jobs))
        refusals: list[Refusal] = []
        for job, its_end in zip(run.jobs, ends, strict=True):
            jitter = 0.0 if isinstance(its_end, Succeeded) else random.random()
            error = its_end.error if isinstance(its_end, Raised) else None
            if is_a(error, RateLimited):
                refusals.append(Refusal(job.record, error, jitter))
                continue
            # A process of its own has packed its result already: the types of its parts stay there.
            pack = None if run.call.isolation == "process" else run.call.pack
            finish = decide(job.record, its_end, jitter=jitter, max_result=self._store.max_payload, pack=pack)
            self.ends.add(job.record, finish, error)
        if refusals:
            self.ends.add_refusals(refusals)

    async def _pace_ended(self, run: Run) -> None:
        for job in run.jobs:
            await self._pace.ended(job.id)

    def _release(self, run: Run) -> None:
        del self._runs[run]
        self._store.clock.handler_ended()
        self.wake()

    def _written(self, ended: Sequence[Finish], lost: Sequence[str]) -> None:
        """The ends are in the store, or were refused because their leases are lost."""
        for finish in ended:
            self._leases.pop(finish.id, None)
        for job_id in lost:
            log.warning("job %s: its lease was lost, what its handler did here is not recorded", job_id)

    # deadlines and leases

    def stop_overdue(self, now: Micros) -> None:
        """Stop handlers that ran longer than their timeout."""
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2] not in self._runs):
            run = heappop(self._deadlines)[2]
            if run in self._runs:
                run.stop("timeout")

    def next_deadline(self) -> Micros:
        """When the next handler is overdue."""
        return self._deadlines[0][0] if self._deadlines else NEVER

    def leases(self) -> list[Lease]:
        """What the heartbeat renews; also called from its thread."""
        return [Lease(job_id, fence) for job_id, (_, fence) in self._leases.copy().items()]

    def fence_of(self, job_id: str) -> int | None:
        """What proves that a job is ours."""
        found = self._leases.get(job_id)
        return None if found is None else found[1]

    def heard(self, heard: Extended) -> None:
        """A heartbeat came back: stop what is lost or cancelled."""
        for job_id in heard.lost:
            found = self._leases.get(job_id)
            if found is not None and found[0] in self._runs:
                log.warning("job %s: its lease was lost; its handler is stopped", job_id)
                found[0].stop("lost")
        asked = set(heard.cancel)
        for job_id in asked:
            found = self._leases.get(job_id)
            if found is None:
                continue
            run = found[0]
            for job in run.jobs:
                if job.id == job_id:
                    job.mark_stopped()
            # A batch goes on while somebody still wants one of its jobs.
            if all(job.id in asked for job in run.jobs):
                run.stop("cancel")

    def stop_all(self, reason: Reason) -> None:
        """Stop every handler."""
        for run in list(self._runs):
            run.stop(reason)

    def hand_back(self, records: Sequence[JobRecord]) -> None:
        """Jobs that were claimed for us and do not begin here any more go back to their places."""
        for record in records:
            if not self._adopt(record):
                self.ends.add(record, decide(record, HandedBack(), jitter=0.0))

    async def hand_back_rest(self) -> None:
        """Give cancelled handlers a moment to clean up; jobs that still run then are handed back regardless."""
        tasks = [run.task for run in self._runs if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLEAN_UP)
        for run in list(self._runs):
            for job in run.jobs:
                self.ends.add(job.record, decide(job.record, HandedBack(), jitter=0.0))
            self._release(run)
            if self._is_paced:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLEAN_UP):
                        await self._pace_ended(run)

    def close(self) -> None:
        """Let go of threads and processes."""
        self._children.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def _measure_lag(self, record: JobRecord, now: Micros) -> None:
        lag = now - (record.started_at or now)
        if lag > self.guard:
            log.warning(
                "job %s began %d ms after its start: more than the guard of a limit (%d ms)",
                record.id,
                lag // 1000,
                self.guard // 1000,
            )


def batch_ends(end: RunEnd, size: int) -> list[RunEnd]:
    """One end per job: a list of results is taken apart, everything else counts for all."""
    if not isinstance(end, Succeeded) or end.value is None:
        return [end] * size
    try:
        return _taken_apart(end.value, size)
    except BaseException as problem:  # the code of a list of its own
        return [Raised(problem)] * size


def _taken_apart(values: Any, size: int) -> list[RunEnd]:
    if not isinstance(values, list | tuple) or len(values) != size:
        got = f"{len(values)} results" if isinstance(values, list | tuple) else f"a {type(values).__name__}"
        problem = ConfigError(f"a batch handler returned {got} for {size} jobs: expected None or one result per job")
        return [Raised(problem)] * size
    return [Raised(value) if is_a(value, BaseException) else Succeeded(value) for value in values]


def _why_it_ended(run: Run, end: RunEnd) -> RunEnd:
    """It was stopped: what the handler made of that counts only where it finished its work all the same."""
    match run.stopped_by:
        case "timeout":
            return TimedOut(run.timeout or 0)
        case "cancel":
            return Cancelled()
        case "torn down" if isinstance(end, Raised) and is_a(end.error, SystemExit, KeyboardInterrupt):
            # It ended the program itself, through a task of its own: three times at most.
            return Crashed(f"{type(end.error).__name__}: it ended its worker")
        case _:
            return end if isinstance(end, Succeeded) else HandedBack()
