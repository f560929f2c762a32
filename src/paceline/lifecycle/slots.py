"""The slots of one worker: the handlers that run now, their leases and their deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from typing import Any, Literal, TypeAlias

from paceline.clock import NEVER, Micros
from paceline.job import Job, JobActions, JobRecord
from paceline.lifecycle.batch import batch_ends
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
from paceline.lifecycle.gate import Gate, Passage, passage_for
from paceline.lifecycle.pace import Pace
from paceline.lifecycle.process import Children
from paceline.lifecycle.run import LATE, Call, Late, run_in_loop, run_in_process, run_in_thread
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

    __slots__ = ("began", "call", "ids", "jobs", "passage", "stopped_by", "task", "timeout")

    def __init__(self, jobs: list[Job[Any]], call: Call, passage: Passage | None) -> None:
        self.jobs = jobs
        """Those that the gate refuses leave it."""
        self.ids = [job.id for job in jobs]
        self.call = call
        self.passage = passage
        """How it passes the gate, where anything counts its beginning."""
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
        self._store = store
        self.gate = Gate(store, self._forget)
        """Where handlers begin."""
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

    def begin(self, records: list[JobRecord], since: Micros) -> None:
        """Call the handler for each job, or for each batch; they started at an instant (of `since_boot`) or later."""
        actions = self._actions
        if not self._leases.keys().isdisjoint(record.id for record in records):
            records = [record for record in records if not self._adopt(record)]
        jobs: list[Job[Any]] = [Job(record, actions) for record in records]
        step = self._batch or 1
        for first in range(0, len(jobs), step):
            self._begin(jobs[first : first + step], since)

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

    def _begin(self, jobs: list[Job[Any]], since: Micros) -> None:
        first = jobs[0].record
        call = self._handler if self._calls is None else self._calls[first.task]
        assert call is not None
        clock = self._store.clock
        run = Run(jobs, call, passage_for(jobs, since, virtual=clock.virtual))
        self._runs[run] = None
        for job in jobs:
            self._leases[job.record.id] = (run, job.record.fence)
        clock.handler_begins()
        if not self._is_watched(run):
            self._log_starts(run)
        run.task = asyncio.get_running_loop().create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        """Run to the end, whatever the end is; only then the slot is free."""
        run.began = True
        if not self._is_watched(run):
            self._time_out(run)
        end: RunEnd = HandedBack()
        interrupt: KeyboardInterrupt | None = None
        if run.stopped_by is None:
            try:
                end = await (run_in_loop(run.call, run.jobs[0]) if self._is_simple(run) else self._execute(run))
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
            await self._end(run, end)
        if interrupt is not None:
            raise interrupt

    async def _end(self, run: Run, end: RunEnd) -> None:
        try:
            if run.passage is not None:
                await self.gate.ended(run.passage)
        finally:
            try:
                if run.jobs:
                    self._record(run, end)
                if self._is_paced:
                    # Whoever limits this worker may take his time: the end does not wait for him.
                    self.wake()
                    await self._pace_ended(run)
            finally:
                self._release(run)

    def _is_torn_down(self, run: Run) -> bool:
        """Somebody cancelled the handler's task along with the worker's: the handler did not fail."""
        return run.task is not None and run.task.cancelling() > 0 and self.torn_down()

    def _is_watched(self, run: Run) -> bool:
        """True when it matters when exactly the handler begins."""
        return run.passage is not None or self._pace.counts_beginnings

    def _is_simple(self, run: Run) -> bool:
        call = run.call
        return call.is_async and self._batch is None and call.isolation != "process" and not self._is_watched(run)

    async def _execute(self, run: Run) -> RunEnd:
        """Call the handler; one that would begin too late waits until the store has decided again."""
        while isinstance(end := await self._call(run), Late):
            assert run.passage is not None
            if not await self.gate.open(run.passage) or not run.jobs or run.stopped_by is not None:
                return HandedBack()
        return end

    async def _call(self, run: Run) -> RunEnd | Late:
        call, passage = run.call, run.passage
        subject: Any = run.jobs[0] if self._batch is None else run.jobs
        began = functools.partial(self._began, run) if self._is_watched(run) else None
        if call.isolation == "process":
            return await run_in_process(call, run.jobs[0], self._children, self._store.max_payload, passage, began)
        if call.is_async:
            return LATE if passage is not None and passage.is_late else await run_in_loop(call, subject, began)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="paceline")
        return await run_in_thread(call, subject, self._threads, passage, began)

    def _began(self, run: Run, at: Micros) -> None:
        """The handler has begun, at this instant of `since_boot`; called in the loop, wherever it runs."""
        self._time_out(run)
        if run.passage is not None:
            self.gate.began(run.passage, at)
        if self._pace.counts_beginnings:
            for job in run.jobs:
                self._pace.began(job.id, self._store.clock.now())
            # From now on it is known when the worker's own limiter opens.
            self.wake()
        self._log_starts(run)

    def _time_out(self, run: Run) -> None:
        """A timeout counts from where the handler begins: one that waits for its turn in a busy loop has not run."""
        if run.timeout is not None:
            heappush(self._deadlines, (self._store.clock.now() + run.timeout, id(run), run))
            self.wake()

    def _log_starts(self, run: Run) -> None:
        if logs_starts():
            for job in run.jobs:
                log_start(job.record)

    def _forget(self, job_id: str) -> None:
        """A job does not begin here: the gate refused it."""
        self._leases.pop(job_id, None)

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
        for job_id in run.ids:
            await self._pace.ended(job_id)

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
        self.gate.close()
        self._children.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None


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
