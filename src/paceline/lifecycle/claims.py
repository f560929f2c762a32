"""Step 2, claim, from the worker's side: ask, begin what came, write what ended, and go on when the store is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from paceline.clock import Micros
from paceline.errors import ConfigError, StoreError
from paceline.lifecycle.notes import Notes
from paceline.lifecycle.outage import Outage
from paceline.lifecycle.pace import Allowance, Pace
from paceline.lifecycle.slots import Slots
from paceline.stores.interface import Ask, Claim, Store

log = logging.getLogger("paceline.worker")

LEAVING = 5.0
"""Real seconds for which a worker that ends tries to write what its jobs did."""

STUMBLES = 5
"""So many unexpected errors in a row, and the worker cannot go on."""


class Claims:
    """What one worker asks the store for, and tells it."""

    def __init__(
        self,
        store: Store,
        slots: Slots,
        pace: Pace,
        notes: Notes,
        *,
        lease: Micros,
        tasks: Callable[[], frozenset[str] | None],
    ) -> None:
        self._store = store
        self._slots = slots
        self._pace = pace
        self._notes = notes
        self._lease = lease
        self._tasks = tasks
        self.begin_anew("", lambda: None)

    def begin_anew(self, worker: str, wake: Callable[[], None]) -> None:
        """The worker of this name begins to run; `wake` makes it look, from any thread."""
        self._worker = worker
        lost = f"worker {worker} cannot claim or write; it goes on when the store is back"
        self._outage = Outage(log, lost, f"worker {worker}: the store is back")
        self._stumbles = 0
        self._ever_claimed = False
        self._notes.wake = wake

    async def ask(self, queues: tuple[str, ...], allowance: Allowance) -> Claim:
        """Write what ended, claim as much as is allowed, and begin it."""
        await self._write_notes()
        ask = self._asking(queues, allowance, self._pace.also)
        try:
            claim = await self._slots.ends.claim(ask)
        except ConfigError:
            # Somebody dropped the limit of this worker's own limiter: what the program declares holds.
            if not self._ever_claimed or not await self._pace.declare_again():
                raise
            claim = await self._slots.ends.claim(ask)
        self._ever_claimed = True
        self._worked()
        await self._begin(claim)
        return claim

    async def write(self, queues: tuple[str, ...]) -> None:
        """Write what ended when there is nothing to ask for."""
        await self._write_notes()
        ends = self._slots.ends
        if not ends:
            return
        if ends.has_open_claim:
            await self._begin(await ends.claim(self._asking(queues, Allowance(0))))
        await ends.write()
        self._worked()

    async def write_all(self, queues: tuple[str, ...]) -> None:
        """The worker ends: write everything, and hand back what a claim still brings."""
        ends = self._slots.ends
        while ends or self._notes:
            try:
                await self._write_notes()
                if ends.has_open_claim:
                    claim = await ends.claim(self._asking(queues, Allowance(0)))
                    self._slots.hand_back(claim.jobs)
                await ends.write()
            except StoreError as error:
                self._outage.failed(error, self._store.clock.now())
                await asyncio.sleep(0.1)
            else:
                self._worked()

    async def is_empty(self, queues: tuple[str, ...]) -> bool:
        """True when nothing is left to do, here or elsewhere."""
        if self._slots.busy:
            return False
        for queue in queues:
            counts = await self._store.counts(queue)
            if counts["waiting"] or counts["delayed"] or counts["active"]:
                return False
        return True

    def failed(self, error: Exception) -> Micros:
        """An error of the store or of a declaration ends no worker that has worked; gives the instant to try again."""
        if isinstance(error, ConfigError) and not self._ever_claimed:
            raise error
        if not isinstance(error, StoreError | ConfigError):
            self._stumbles += 1
            log.error("worker %s met an unexpected error", self._worker, exc_info=error)
            if self._stumbles >= STUMBLES:
                raise error
        return self._outage.failed(error, self._store.clock.now())

    def _worked(self) -> None:
        self._stumbles = 0
        if self._outage.lasts:
            self._outage.worked(self._store.clock.now())

    async def _write_notes(self) -> None:
        if self._notes:
            await self._notes.write(self._slots.fence_of)

    async def _begin(self, claim: Claim) -> None:
        """Call the handlers; who is cancelled before that hands the jobs back."""
        if claim.jobs:
            try:
                await self._pace.started(claim.jobs, self._store.clock.now())
            except BaseException:
                self._slots.hand_back(claim.jobs)
                for job in claim.jobs:
                    await self._pace.ended(job.id)
                raise
        self._slots.begin(claim.jobs, self._slots.ends.since)

    def _asking(
        self, queues: tuple[str, ...], allowance: Allowance, also: tuple[str, ...] = ()
    ) -> Callable[[str], Ask]:
        """What to ask for, under whatever name the claim has."""
        return lambda name: Ask(
            queues=queues,
            slots=allowance.slots,
            worker=self._worker,
            lease=self._lease,
            claim_id=name,
            tasks=self._tasks(),
            also=also,
            room=allowance.room,
            most=allowance.most,
        )


async def within(seconds: float, work: Coroutine[Any, Any, Any], left: str) -> None:
    """Do this for so many seconds at most: the ends of leases do the rest."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        task.cancel()
    why: object = "the store does not answer"
    if task.done() and not task.cancelled():
        if task.exception() is None:
            return
        why = task.exception()
    log.warning("a worker that ends leaves behind %s: %s", left, why)
