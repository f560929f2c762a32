"""Worker: claims as many jobs as it has slots and limits allow, runs them, and writes how they ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Never

from paceline.checks import check_count, check_name, check_optional_name
from paceline.clock import NEVER, SECOND, Micros, wait_exactly
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, refuse_unknown, require
from paceline.forks import reset_when_forked
from paceline.lifecycle.aim import Aim
from paceline.lifecycle.claims import LEAVING, Claims, within
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.finish import MAX_RETURNS
from paceline.lifecycle.insist import all_set, end_task, insist
from paceline.lifecycle.notes import Notes
from paceline.lifecycle.pace import Pace, make_pace
from paceline.lifecycle.run import Call, Isolation
from paceline.lifecycle.slots import Slots
from paceline.limits import GroupLimits, Limit
from paceline.options import new_id
from paceline.stores import shared_store
from paceline.stores.interface import Claim, Listener, Store, WorkerRecord
from paceline.upkeep.heartbeat import Heartbeat
from paceline.upkeep.lags import report_forever
from paceline.upkeep.prune import prune_forever

log = logging.getLogger("paceline.worker")

INSURANCE: Micros = 30 * SECOND
"""No wait is longer, in case a wake-up gets lost; how often that was needed is counted."""

VIRTUAL_GRACE = 0.1
"""Real seconds that handlers get at the end of `async with worker` when a test moves the clock."""


class DefaultGrace(str):
    """The grace of a `stop()` that names none: the worker's own, which is this one unless it was given another."""

    __slots__ = ()


GRACE = DefaultGrace("25s")
OPTIONS = "concurrency, limiter, group, batch, lease, isolation, max_returns, name or grace"


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
        grace: Duration = GRACE,
        calls: Mapping[str, Call] | None = None,
        declarations: Declarations | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "Worker", OPTIONS)
        names = tuple(queue) if isinstance(queue, Iterable) and not isinstance(queue, str) else (queue,)
        require(bool(names), "queue", queue, "a name or several")
        self.queues = tuple(check_name(each, option="queue") for each in names)
        self.concurrency = check_count(concurrency, option="concurrency")
        self.batch = None if batch is None else check_count(batch, option="batch")
        self.lease = parse_duration(lease, option="lease")
        self.grace = parse_duration(grace, option="grace", zero=True)
        self._given_name = check_optional_name(name, option="name")
        self.forked()
        reset_when_forked(self)
        self._calls = calls
        require(handler is not None or calls is not None, "handler", handler, "a function that takes a job")
        require(not (self.batch and isolation == "process"), "batch", batch, "no batch with isolation='process'")
        self._store = shared_store(store)
        self._declarations = declarations or Declarations(self._store)
        require(group is None or isinstance(group, GroupLimits), "group", group, "GroupLimits(concurrency, limiter)")
        if group is not None:
            for each in self.queues:
                self._declarations.add(Limit(f"group:{each}", group.kind, queues=[each], by="group"))
        self._pace: Pace = make_pace(limiter, self._store)
        notes = Notes(self._declarations)
        self._slots = Slots(
            self._store,
            notes,
            size=self.concurrency,
            batch=self.batch,
            handler=None if handler is None else Call.of(handler, isolation),
            calls=calls,
            pace=self._pace,
            max_returns=check_count(max_returns, option="max_returns"),
        )
        self._claims = Claims(self._store, self._slots, self._pace, notes, lease=self.lease, tasks=self._tasks)
        self._listener: Listener | None = None
        self._listens = asyncio.Event()
        self._stopping = False
        self._grace_over = False
        self._paused = False
        self._done: asyncio.Event | None = None
        self._background: asyncio.Task[None] | None = None
        self._crew: list[Worker] = []
        self._around: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._known: frozenset[str] | None = None
        self.insurance_wakeups = 0
        """How often the bound of a wait, and not a wake-up, brought work: a lost wake-up each."""

    def forked(self) -> None:
        """A worker that was made before a fork is another one in each child."""
        self.name = self._given_name or f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"

    def __repr__(self) -> str:
        return f"<Worker {self.name} {', '.join(self.queues)}: {self._slots.running} of {self.concurrency} slots busy>"

    @property
    def grace_exceeded(self) -> bool:
        """True when handlers did not end within the grace of `stop()` and their jobs were handed back."""
        return any(worker._grace_over for worker in (self, *self._crew))

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
        if self._done is not None and not self._done.is_set():
            raise ConfigError("this worker runs already; make a second one to run two", option="run")
        self._stopping = self._grace_over = False
        self._done = asyncio.Event()
        try:
            await self._serve(await self._declarations.ready(), until_empty)
        finally:
            self._done.set()

    async def _serve(self, store: Store, until_empty: bool) -> None:
        slots = self._slots
        listener = self._listener = store.listen(self.queues, self.name)
        listener.wants_empty = until_empty
        heartbeat = Heartbeat(store, self.name, self.lease, slots.leases, slots.heard, lambda: slots.stop_all("lost"))
        pruning = asyncio.create_task(prune_forever(store))
        reporting = asyncio.create_task(report_forever(store, slots.gate.lags, self._record))
        self._connect(listener)
        try:
            await store.register(self._record())
            self._warn_of_unknown_tasks(await store.limits())
            heartbeat.start()
            self._listens.set()
            await self._work(store, listener, heartbeat, until_empty)
            await self._wind_down(store, listener, heartbeat)
        finally:
            reporting.cancel()
            await insist(lambda: self._leave(store, listener, heartbeat, pruning))

    def _connect(self, listener: Listener) -> None:
        """What happens to handlers and their notes wakes this worker; and handlers end with its task."""
        loop, owner = asyncio.get_running_loop(), asyncio.current_task()
        assert owner is not None
        before = owner.cancelling()
        self._slots.wake = listener.event.set
        self._slots.torn_down = lambda: owner.cancelling() > before
        self._claims.begin_anew(self.name, wake=lambda: call_soon(loop, listener.event.set))

    async def _leave(self, store: Store, listener: Listener, heartbeat: Heartbeat, pruning: asyncio.Task[None]) -> None:
        """However a worker ends: hand back what runs, write every end, and let go of everything, within seconds."""
        slots = self._slots
        pruning.cancel()
        slots.stop_all("stop")
        await slots.hand_back_rest()
        await within(LEAVING, self._claims.write_all(self.queues), "what its jobs did: they run again")
        await heartbeat.stop()
        await within(1.0, store.unregister(self.name), "its name in the list of workers")
        listener.close()
        slots.close()
        self._listener = None
        self._listens.clear()

    async def stop(self, grace: Duration = GRACE) -> None:
        """Claim nothing more, give handlers the grace, then hand their jobs back without using an attempt."""
        given = self.grace if grace is GRACE else parse_duration(grace, option="grace", zero=True)
        await asyncio.gather(*(worker._stop_alone(given) for worker in (self, *self._crew)))

    async def _stop_alone(self, grace: Micros) -> None:
        until = self._store.clock.now() + grace
        listener, done = self._listener, self._done
        self._ask_to_stop()
        if done is None:
            return
        if not await self._store.clock.wait(done, until):
            self._grace_over = True
            self._slots.stop_all("stop")
            if listener is not None:
                listener.event.set()
            await done.wait()

    def _ask_to_stop(self) -> None:
        for worker in (self, *self._crew):
            worker._stopping = True
            if worker._listener is not None:
                worker._listener.event.set()

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
        crew = (self, *self._crew)
        for worker in crew:
            worker._listens = asyncio.Event()
        background = asyncio.create_task(self.run())
        # The worker listens before the body goes on, so that nothing added there can be missed.
        listening = asyncio.create_task(all_set([worker._listens for worker in crew]))
        either: list[asyncio.Future[Any]] = [background, listening]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await insist(lambda: end_task(background))
            raise
        finally:
            listening.cancel()
        if background.done():
            await background
        self._background = background
        return self

    async def __aexit__(self, *error: object) -> None:
        background, self._background = self._background, None
        if background is None:
            return
        try:
            if self._store.clock.virtual:
                # Nobody moves the clock while the test waits here: handlers get a moment of real time instead.
                self._ask_to_stop()
                await asyncio.wait([background], timeout=VIRTUAL_GRACE)
                await self.stop(grace=0)
            await self.stop()
        except asyncio.CancelledError:
            await insist(lambda: end_task(background))
            raise
        await background

    # the loop

    async def _work(self, store: Store, listener: Listener, heartbeat: Heartbeat, until_empty: bool) -> None:
        clock = store.clock
        queues = self.queues
        aim = Aim()
        overslept = False
        while not self._stopping:
            listener.event.clear()
            sent_at = clock.now()
            try:
                await self._look_at_leases(listener, heartbeat)
                self._slots.stop_overdue(clock.now())
                claim, until = await self._claim(store, queues)
                if until_empty and await self._claims.is_empty(self.queues):
                    return
            except Exception as error:
                await self._rest(listener, self._claims.failed(error))
                continue
            self.insurance_wakeups += bool(overslept and claim is not None and claim.jobs)
            if claim is not None:
                aim.learn(sent_at, claim.now, started=bool(claim.jobs))
                if claim.jobs:
                    queues = _after(claim.jobs[-1].queue, queues)
            until = min(until, self._slots.next_deadline())
            if until <= clock.now():
                await asyncio.sleep(0)
                overslept = False
                continue
            bound = clock.now() + INSURANCE
            if claim is not None and until == claim.ask_again_at < bound and not clock.virtual:
                until = aim.before(until)
            woken = await wait_exactly(clock, listener.event, min(until, bound))
            overslept = not woken and bound < until
            if woken:
                aim.forget()

    async def _rest(self, listener: Listener, until: Micros) -> None:
        """Ask the store nothing for a while; timeouts go on."""
        clock = self._store.clock
        while not self._stopping and clock.now() < until:
            listener.event.clear()
            self._slots.stop_overdue(clock.now())
            await clock.wait(listener.event, min(until, self._slots.next_deadline()))

    async def _look_at_leases(self, listener: Listener, heartbeat: Heartbeat) -> None:
        """Renew now, and not only at the next beat, when somebody cancelled one of our jobs, or after a standstill:
        a claim takes back leases that ended, our own too.
        """
        if listener.heartbeat_due or heartbeat.overdue:
            await heartbeat.beat()
            listener.heartbeat_due = False

    async def _claim(self, store: Store, queues: tuple[str, ...]) -> tuple[Claim | None, Micros]:
        """Write what ended, ask for what fits, begin what came; gives the instant to look again."""
        slots = self._slots
        if slots.free <= 0 or self._paused:
            await self._claims.write(queues)
            return None, NEVER
        async with self._pace.turn():
            allowance = await self._pace.allows(slots.free * (self.batch or 1), store.clock.now())
            if allowance.slots <= 0:
                await self._claims.write(queues)
                return None, allowance.until
            claim = await self._claims.ask(queues, allowance)
        if claim.needs_room:
            return claim, self._pace.wait_for_room(claim.needs_room, claim.now)
        if len(claim.jobs) >= allowance.slots:
            # All that was asked for came: there may be more.
            return claim, claim.now if slots.free > 0 else NEVER
        return claim, claim.ask_again_at

    async def _wind_down(self, store: Store, listener: Listener, heartbeat: Heartbeat) -> None:
        """Wait for the handlers that still run; `stop` cancels them when its grace is over."""
        slots, clock = self._slots, store.clock
        while slots.busy and not self._grace_over:
            listener.event.clear()
            until = slots.next_deadline()
            try:
                await self._look_at_leases(listener, heartbeat)
                slots.stop_overdue(clock.now())
                await self._claims.write(self.queues)
            except Exception as error:
                until = min(until, self._claims.failed(error))
            if slots.busy and not self._grace_over:
                await clock.wait(listener.event, until)

    # tasks

    def _tasks(self) -> frozenset[str] | None:
        if self._calls is None:
            return None
        if self._known is None or len(self._known) != len(self._calls):
            self._known = frozenset(self._calls)
        return self._known

    def _record(self) -> WorkerRecord:
        """What the store is told of this worker."""
        lags = self._slots.gate.lags.summary()
        return WorkerRecord(id=self.name, queues=self.queues, tasks=self._tasks(), lags=lags)

    def _warn_of_unknown_tasks(self, limits: Sequence[Limit]) -> None:
        for limit in limits if self._calls is not None else ():
            missing = sorted((limit.tasks or frozenset()) - (self._tasks() or frozenset()))
            if missing and (limit.queues is None or not limit.queues.isdisjoint(self.queues)):
                log.warning("limit %r names tasks that this worker does not know: %s", limit.name, ", ".join(missing))


def _after(served: str, queues: tuple[str, ...]) -> tuple[str, ...]:
    """The next claim begins behind the queue that was served last: a claim that starts nothing uses no turn."""
    turn = queues.index(served) + 1
    return queues[turn:] + queues[:turn]


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call this in the worker's loop, from whatever thread."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(call)
