"""A worker's own limiter: how many jobs it may ask for. What the store limits is decided in the store."""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from paceline.clock import NEVER, SECOND, Micros, from_datetime
from paceline.errors import ConfigError
from paceline.job import JobRecord
from paceline.limits import Kind, Rate
from paceline.limits.admission import Meter
from paceline.limits.rule import cost_under
from paceline.stores.interface import Store

log = logging.getLogger("paceline.worker")

SIX = (
    "can_proceed",
    "record_job_start",
    "record_job_completion",
    "get_next_available_time",
    "set_next_available_time",
    "clear",
)
SHORTEST_WAIT = SECOND // 4
LONGEST_WAIT = 5 * SECOND


@runtime_checkable
class LimiterProtocol(Protocol):
    """Six coroutines: any object that has them can limit a worker or be part of a `CompositeLimiter`."""

    async def can_proceed(self) -> bool: ...
    async def record_job_start(self) -> None: ...
    async def record_job_completion(self) -> None: ...
    async def get_next_available_time(self) -> datetime: ...
    async def set_next_available_time(self, when: datetime) -> None: ...
    async def clear(self) -> None: ...


def check_limiter(limiter: object, *, option: str, expected: str = "a Limiter") -> Any:
    """Refuse an object that lacks one of the six methods."""
    missing = [name for name in SIX if not callable(getattr(limiter, name, None))]
    if missing or inspect.isclass(limiter):
        raise ConfigError(
            f"{option}={limiter!r} is wrong: expected {expected} or an object with the six coroutines "
            f"{', '.join(SIX)}; it lacks {', '.join(missing) or 'an instance'}",
            option=option,
            value=limiter,
        )
    return limiter


class Allowance:
    """How many jobs to ask for now, of how much cost in all (`room`) and each (`most`), or when to look again."""

    __slots__ = ("most", "room", "slots", "until")

    def __init__(self, slots: int, room: int | None = None, until: Micros = NEVER, most: int | None = None) -> None:
        self.slots = slots
        self.room = room
        self.until = until
        self.most = most


class Pace:
    """No limiter of its own: ask for every free slot."""

    also: tuple[str, ...] = ()

    def turn(self) -> AbstractAsyncContextManager[Any]:
        """Held from the question to the record of the start."""
        return nullcontext()

    async def allows(self, free: int, now: Micros) -> Allowance:
        return Allowance(free)

    async def started(self, jobs: list[JobRecord], now: Micros) -> None:
        return None

    def wait_for_room(self, cost: int, now: Micros) -> Micros:
        """When a job of this cost fits."""
        return now

    async def ended(self, job_id: str) -> None:
        return None


class KindPace(Pace):
    """A kind that is private to this worker, counted in this process."""

    def __init__(self, kind: Kind) -> None:
        self._meter = Meter(("worker", None), kind)
        self._most = min((part.max for part in kind.parts() if isinstance(part, Rate)), default=None)

    async def allows(self, free: int, now: Micros) -> Allowance:
        meter = self._meter
        opens = meter.opens_at(1)
        if opens > now:
            return Allowance(0, until=opens)
        room: int | None = None
        for part, state in meter.cells:
            left = part.allowed - part.used(state, len(meter.leases), now)
            free = min(free, left)
            if isinstance(part, Rate):
                room = left if room is None else min(room, left)
        return Allowance(free, room, most=self._most)

    async def started(self, jobs: list[JobRecord], now: Micros) -> None:
        for job in jobs:
            self._meter.charge(job.id, cost_under(job.cost, ""), now)

    def wait_for_room(self, cost: int, now: Micros) -> Micros:
        return self._meter.opens_at(cost)

    async def ended(self, job_id: str) -> None:
        self._meter.leases.discard(job_id)


_turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
"""One lock per limiter object, for as long as a worker holds both."""


class ObjectPace(Pace):
    """A limiter object. One that is made of named limits of this store is checked inside the claim;
    any other is asked before every claim, one job at a time, and told of every start and end.
    """

    def __init__(self, limiter: LimiterProtocol, store: Store) -> None:
        self._limiter = limiter
        self._store = store
        self._wait: Micros = 0
        self._not_before: Micros = 0
        self._running: set[str] = set()
        # Several workers that share one object must not ask it at the same time.
        self._lock = _turns.setdefault(id(limiter), asyncio.Lock())

    @property
    def also(self) -> tuple[str, ...]:  # type: ignore[override]  # a limiter may grow while it is used
        return self._names() or ()

    def _names(self) -> tuple[str, ...] | None:
        names: Callable[[Store], tuple[str, ...] | None] | None = getattr(self._limiter, "limits_in", None)
        return None if names is None else names(self._store)

    def turn(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._names() is not None else self._lock

    async def allows(self, free: int, now: Micros) -> Allowance:
        if now < self._not_before:
            return Allowance(0, until=self._not_before)
        if self._names() is not None:
            await self._limiter.write_declarations()  # type: ignore[attr-defined]  # comes with limits_in
            return Allowance(free)
        try:
            if await self._limiter.can_proceed():
                self._wait = 0
                return Allowance(1)
            when = from_datetime(await self._limiter.get_next_available_time(), option="get_next_available_time()")
        except Exception:
            log.exception("the limiter %r failed; nothing is claimed until it answers", self._limiter)
            when = now
        # A limiter that refuses without naming a later time is asked less and less often.
        self._wait = min(max(self._wait * 2, SHORTEST_WAIT), LONGEST_WAIT)
        self._not_before = when if when > now else now + self._wait
        return Allowance(0, until=self._not_before)

    async def started(self, jobs: list[JobRecord], now: Micros) -> None:
        if self._names() is None:
            for job in jobs:
                self._running.add(job.id)
                await self._tell("record_job_start")

    async def ended(self, job_id: str) -> None:
        if job_id in self._running:
            self._running.discard(job_id)
            # The end of a job may have opened it: ask again.
            self._not_before = 0
            await self._tell("record_job_completion")

    async def _tell(self, what: str) -> None:
        try:
            await getattr(self._limiter, what)()
        except Exception:
            log.exception("the limiter %r failed in %s; the job goes on", self._limiter, what)


def make_pace(limiter: object, store: Store) -> Pace:
    """The pace of a worker: from a kind, a named limiter, or an object with the six methods."""
    if limiter is None:
        return Pace()
    if isinstance(limiter, Kind) and not inspect.isclass(limiter):
        return KindPace(limiter)
    return ObjectPace(check_limiter(limiter, option="limiter", expected="a kind, a Limiter"), store)
