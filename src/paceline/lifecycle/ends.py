"""The ends of runs on their way to the store: kept until they are written, whatever happens to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from paceline.clock import Micros, since_boot
from paceline.errors import ConfigError, SchemaMismatch, StoreUnavailable
from paceline.job import JobRecord
from paceline.lifecycle.finish import Raised, decide
from paceline.lifecycle.tell import log_end, log_failed, logs_end
from paceline.limits import Limit
from paceline.options import new_id
from paceline.stores.interface import Ask, Claim, Finish, Outcome, Store
from paceline.verdicts import RateLimited

log = logging.getLogger("paceline.worker")


class Refusal(msgspec.Struct, frozen=True):
    """A service refused a job: which limits that holds is decided once they can be read."""

    record: JobRecord
    verdict: RateLimited
    jitter: float


class Ends:
    """What one worker has to write, and the claim whose answer has not come."""

    def __init__(
        self, store: Store, written: Callable[[Sequence[Finish], Sequence[str]], None], *, max_returns: int
    ) -> None:
        self._store = store
        self._written = written
        self._max_returns = max_returns
        self._ready: list[Finish] = []
        self._refusals: list[list[Refusal]] = []
        self._asked: tuple[str, list[Finish], Micros] | None = None
        self.since: Micros = 0
        """What the latest claim gave was stamped at this instant or later, on the clock of `since_boot`."""

    def __bool__(self) -> bool:
        return bool(self._ready or self._refusals or self._asked)

    @property
    def has_open_claim(self) -> bool:
        """True while nobody knows whether a claim took place: its answer was lost, or its caller was cancelled."""
        return self._asked is not None

    def add(self, record: JobRecord, finish: Finish, error: BaseException | None = None) -> None:
        """The store is to write this end, and the log shows it."""
        self._ready.append(finish)
        if logs_end(finish):
            log_end(record, finish, self._store.clock.now(), error)

    def add_refusals(self, refusals: list[Refusal]) -> None:
        """A service refused a run: one job, or several of a batch."""
        self._refusals.append(refusals)

    def adopt(self, record: JobRecord) -> None:
        """The store gave us a job anew whose run has ended here: that end counts for the new lease."""
        self._ready = [
            msgspec.structs.replace(end, fence=record.fence) if end.id == record.id else end for end in self._ready
        ]

    async def claim(self, ask: Callable[[str], Ask]) -> Claim:
        """Claim, and write what ended along with it.

        A claim whose answer was lost is asked again under its old name and with the same ends, so that nothing starts
        twice and no end gets lost.
        """
        while True:
            if self._asked is None:
                await self._settle_refusals()
                self._asked = new_id(), self._take(), since_boot()
            name, sent, asked_at = self._asked
            try:
                claim = await self._store.claim(ask(name), sent)
            except StoreUnavailable:
                raise
            except Exception:
                # Refused as a whole: on their own, ends hold up neither each other nor the next claim.
                self._asked = None
                if not sent:
                    raise
                self._ready = sent + self._ready
                await self.write()
                continue
            self._asked = None
            self.since = asked_at + claim.waited
            self._written(sent, claim.lost)
            log_failed(claim.failed)
            return claim

    async def write(self) -> None:
        """Write what ended when no claim carries it."""
        await self._settle_refusals()
        if self._ready:
            await self._write(self._take())

    def _take(self) -> list[Finish]:
        ready, self._ready = self._ready, []
        return ready

    async def _write(self, ends: list[Finish]) -> None:
        try:
            lost = await self._store.finish(ends)
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, StoreUnavailable | SchemaMismatch):
                self._ready = ends + self._ready
                raise
            refused = error
        else:
            self._written(ends, lost)
            return
        if len(ends) == 1:
            await self._write_otherwise(ends[0], refused)
            return
        for place, end in enumerate(ends):
            try:
                await self._write([end])
            except BaseException:
                self._ready = ends[place + 1 :] + self._ready
                raise

    async def _write_otherwise(self, end: Finish, refused: Exception) -> None:
        """The store takes everything but this end: write what it can take, so that the job does not run again."""
        try:
            for other in await self._substitutes(end, refused):
                try:
                    lost = await self._store.finish([other])
                except ConfigError as error:
                    refused = error
                    continue
                self._written([other], lost)
                return
            raise refused
        except BaseException:
            self._ready.insert(0, end)
            raise

    async def _substitutes(self, end: Finish, refused: Exception) -> list[Finish]:
        if isinstance(refused, ConfigError) and end.holds:
            # A limit was dropped while a handler was refused under it: there is nothing left to hold.
            known = {limit.name for limit in await self._store.limits()}
            left = tuple(hold for hold in end.holds if hold.create is not None or hold.limit in known)
            return [msgspec.structs.replace(end, holds=holds) for holds in (left, ())]
        log.error("job %s: the store refused the end of its run (%s): %s", end.id, end.outcome, refused)
        words = ascii(f"{type(refused).__name__}: {refused}")[1:-1]
        text = f"the store refused the end of its run ({end.outcome}): {words}"
        return [Finish(id=end.id, fence=end.fence, outcome=Outcome.FAILED, error=text)]

    async def _settle_refusals(self) -> None:
        """Decide what refusals hold, now that the store can be asked which limits there are."""
        if not self._refusals:
            return
        limits = await self._store.limits()
        refusals, self._refusals = self._refusals, []
        for run in refusals:
            self._settle_run(run, limits)

    def _settle_run(self, run: list[Refusal], limits: Sequence[Limit]) -> None:
        held: set[tuple[str, str | None]] = set()
        for each in run:
            end = Raised(each.verdict)
            finish = decide(each.record, end, jitter=each.jitter, limits=limits, max_returns=self._max_returns)
            # A batch that was refused as a whole was refused once.
            new = tuple(hold for hold in finish.holds if (hold.limit, hold.group) not in held)
            held.update((hold.limit, hold.group) for hold in new)
            self.add(each.record, msgspec.structs.replace(finish, holds=new), each.verdict)
