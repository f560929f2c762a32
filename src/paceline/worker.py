"""Worker: claims as many jobs as it has slots and limits allow, runs them, and writes how they ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from paceline.checks import check_count, check_name
from paceline.clock import NEVER, SECOND, Micros
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, StoreError, require
from paceline.lifecycle.actions import StoreActions
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.finish import MAX_RETURNS
from paceline.lifecycle.pace import Allowance, Pace, make_pace
from paceline.lifecycle.run import Call, Isolation
from paceline.lifecycle.slots import Slots
from paceline.limits import GroupLimits, Limit
from paceline.options import new_id
from paceline.stores import shared_store
from paceline.stores.interface import Ask, Claim, Listener, Store, WorkerRecord
from paceline.upkeep.heartbeat import Heartbeat
from paceline.upkeep.prune import prune_forever

log = logging.getLogger("paceline.worker")

INSURANCE: Micros = 30 * SECOND
"""No wait is longer, in case a wake-up gets lost; how often that was needed is counted."""

VIRTUAL_GRACE = 0.1
"""Real seconds that handlers get at the end of `async with worker` when a test moves the clock."""


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
        names = tuple(queue) if isinstance(queue, Iterable) and not isinstance(queue, str) else (queue,)
        require(bool(names), "queue", queue, "a name or several")
        self.queues = tuple(check_name(each, option="queue") for each in names)
        self.concurrency = check_count(concurrency, option="concurrency")
        self.batch = None if batch is None else check_count(batch, option="batch")
        self.lease = parse_duration(lease, option="lease")
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"
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
        self._slots = Slots(
            self._store,
            StoreActions(self._declarations),
            size=self.concurrency,
            batch=self.batch,
            handler=None if handler is None else Call.of(handler, isolation),
            calls=calls,
            pace=self._pace,
            max_returns=check_count(max_returns, option="max_returns"),
        )
        self._listener: Listener | None = None
        self._listens = asyncio.Event()
        self._claim_id = ""
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
            store = await self._declarations.ready()
        except BaseException:
            self._done.set()
            raise
        listener = self._listener = store.listen(self.queues, self.name)
        slots = self._slots
        listener.wants_empty = until_empty
        slots.wake = listener.event.set
        heartbeat = Heartbeat(store, self.name, self.lease, slots.leases, slots.heard, lambda: slots.stop_all("lost"))
        await store.register(WorkerRecord(id=self.name, queues=self.queues, tasks=self._tasks()))
        self._warn_of_unknown_tasks(await store.limits())
        heartbeat.start()
        pruning = asyncio.create_task(prune_forever(store))
        self._listens.set()
        try:
            await self._work(store, listener, heartbeat, until_empty)
            await self._wind_down(store, listener, heartbeat)
        except BaseException:
            slots.stop_all("stop")
            await asyncio.shield(self._hand_back(store))
            raise
        finally:
            pruning.cancel()
            await heartbeat.stop()
            await store.unregister(self.name)
            listener.close()
            slots.close()
            self._listener = None
            self._listens.clear()
            self._done.set()

    async def stop(self, grace: Duration = "25s") -> None:
        """Claim nothing more, give handlers the grace, then hand their jobs back without using an attempt."""
        await asyncio.gather(self._stop_alone(grace), *(worker._stop_alone(grace) for worker in self._crew))

    async def _stop_alone(self, grace: Duration) -> None:
        until = self._store.clock.now() + parse_duration(grace, option="grace", zero=True)
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
        if background is None:
            return
        if self._store.clock.virtual:
            # Nobody moves the clock while the test waits here: handlers get a moment of real time instead.
            self._ask_to_stop()
            await asyncio.wait([background], timeout=VIRTUAL_GRACE)
            await self.stop(grace=0)
        await self.stop()
        await background

    # the loop

    async def _work(self, store: Store, listener: Listener, heartbeat: Heartbeat, until_empty: bool) -> None:
        clock = store.clock
        queues = self.queues
        overslept = False
        while not self._stopping:
            listener.event.clear()
            await self._look_at_leases(listener, heartbeat)
            self._slots.stop_overdue(clock.now())
            claim, until = await self._claim(store, queues)
            self.insurance_wakeups += bool(overslept and claim is not None and claim.jobs)
            if claim is not None and len(queues) > 1:
                # The next claim begins with another queue, so that a single slot serves all of them.
                queues = queues[1:] + queues[:1]
            if until_empty and await self._is_empty(store):
                return
            until = min(until, self._slots.next_deadline())
            if until <= clock.now():
                await asyncio.sleep(0)
                overslept = False
                continue
            bound = clock.now() + INSURANCE
            woken = await clock.wait(listener.event, min(until, bound))
            overslept = not woken and bound < until

    async def _look_at_leases(self, listener: Listener, heartbeat: Heartbeat) -> None:
        """Somebody cancelled one of our jobs: hear of it now, and not only at the next beat."""
        if listener.heartbeat_due:
            listener.heartbeat_due = False
            try:
                await heartbeat.beat()
            except StoreError as error:
                log.warning("worker %s cannot look at its leases: %s", self.name, error)

    async def _claim(self, store: Store, queues: tuple[str, ...]) -> tuple[Claim | None, Micros]:
        """Write what ended, ask for what fits, begin what came; gives the instant to look again."""
        slots = self._slots
        if slots.free <= 0 or self._paused:
            await self._flush(store)
            return None, NEVER
        async with self._pace.turn():
            allowance = await self._pace.allows(slots.free * (self.batch or 1), store.clock.now())
            if allowance.slots <= 0:
                await self._flush(store)
                return None, allowance.until
            claim = await self._ask(store, queues, allowance)
            if claim is None:
                return None, store.clock.now() + SECOND
            if claim.jobs:
                await self._pace.started(claim.jobs, store.clock.now())
        slots.guard = claim.guard
        slots.begin(claim.jobs)
        if claim.needs_room:
            return claim, self._pace.wait_for_room(claim.needs_room, claim.now)
        if len(claim.jobs) >= allowance.slots:
            # All that was asked for came: there may be more.
            return claim, claim.now if slots.free > 0 else NEVER
        return claim, claim.ask_again_at

    async def _ask(self, store: Store, queues: tuple[str, ...], allowance: Allowance) -> Claim | None:
        ended = self._slots.take_ended()
        # A claim whose answer was lost is asked again under its old name, so that nothing starts twice.
        self._claim_id = self._claim_id or new_id()
        ask = Ask(
            queues=queues,
            slots=allowance.slots,
            worker=self.name,
            lease=self.lease,
            claim_id=self._claim_id,
            tasks=self._tasks(),
            also=self._pace.also,
            room=allowance.room,
            most=allowance.most,
        )
        try:
            claim = await store.claim(ask, ended)
        except StoreError as error:
            self._slots.put_back(ended)
            log.warning("worker %s cannot claim: %s; it goes on when the store is back", self.name, error)
            return None
        self._claim_id = ""
        self._slots.written(ended, claim.lost)
        return claim

    async def _flush(self, store: Store) -> None:
        """Write the ends of runs when no claim carries them."""
        ended = self._slots.take_ended()
        if not ended:
            return
        try:
            lost = await store.finish(ended)
        except StoreError as error:
            self._slots.put_back(ended)
            log.warning("worker %s cannot write: %s; it tries again", self.name, error)
            await store.clock.wait(asyncio.Event(), store.clock.now() + SECOND)
            return
        self._slots.written(ended, lost)

    async def _is_empty(self, store: Store) -> bool:
        if self._slots.busy:
            return False
        for queue in self.queues:
            counts = await store.counts(queue)
            if counts["waiting"] or counts["delayed"] or counts["active"]:
                return False
        return True

    async def _wind_down(self, store: Store, listener: Listener, heartbeat: Heartbeat) -> None:
        """Wait for the handlers that still run; `stop` cancels them when its grace is over."""
        slots = self._slots
        while slots.running and not self._grace_over:
            listener.event.clear()
            await self._look_at_leases(listener, heartbeat)
            slots.stop_overdue(store.clock.now())
            await self._flush(store)
            if slots.running and not self._grace_over:
                await store.clock.wait(listener.event, slots.next_deadline())
        await self._hand_back(store)

    async def _hand_back(self, store: Store) -> None:
        await self._slots.hand_back_rest()
        await self._flush(store)

    # tasks

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
