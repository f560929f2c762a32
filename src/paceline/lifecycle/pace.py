"""A worker's own limiter: how many jobs it may ask for. What the store limits is decided in the store."""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

from paceline.clock import NEVER, SECOND, Micros, from_datetime
from paceline.errors import ConfigError
from paceline.job import JobRecord
from paceline.lifecycle.tell import log_safely
from paceline.limits import Kind, Rate
from paceline.limits.admission import Meter
from paceline.limits.rule import cost_under
from paceline.stores.interface import Store
from paceline.text import is_a, show

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
LAST_WORDS = 2.0
"""Real seconds that a limiter gets to hear of a start or an end when its worker is cancelled."""


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
            f"{option}={show(limiter)} is wrong: expected {expected} or an object with the six coroutines "
            f"{', '.join(SIX)}; it lacks {', '.join(missing) or 'an instance'}",
            option=option,
            value=limiter,
        )
    return limiter


class NamedLimiter(Protocol):
    """A limiter that stands for a limit of a store."""

    name: str

    async def write_declarations(self) -> None: ...
    async def declare_again(self) -> bool: ...


class Parts(NamedTuple):
    """What a limiter consists of: limits that a claim decides, and objects that are asked beside it."""

    named: tuple[NamedLimiter, ...] = ()
    own: tuple[LimiterProtocol, ...] = ()


class HasParts(ABC):
    """A limiter that knows which of its parts a claim on a store decides."""

    @abstractmethod
    def parts_in(self, store: Store) -> Parts: ...


def parts_of(limiter: LimiterProtocol, store: Store) -> Parts:
    """The parts of any limiter: an object of a user's own is asked as a whole."""
    return limiter.parts_in(store) if isinstance(limiter, HasParts) else Parts(own=(limiter,))


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

    @property
    def counts_beginnings(self) -> bool:
        """True when `began` has to be called for every job."""
        return False

    def began(self, job_id: str, now: Micros) -> None:
        """The handler of a job has begun."""

    def wait_for_room(self, cost: int, now: Micros) -> Micros:
        """When a job of this cost fits."""
        return now

    async def ended(self, job_id: str) -> None:
        return None

    async def declare_again(self) -> bool:
        """The store does not know one of the limits: declare them again; False when this program declares none."""
        return False


class KindPace(Pace):
    """A kind that is private to this worker, counted in this process."""

    def __init__(self, kind: Kind) -> None:
        self._meter = Meter(("worker", None), kind)
        self._open: dict[str, int] = {}
        """What jobs cost whose handlers have not begun: it counts until they have."""
        self._most = min((part.max for part in kind.parts() if isinstance(part, Rate)), default=None)

    async def allows(self, free: int, now: Micros) -> Allowance:
        meter = self._meter
        opens = meter.opens_at(1)
        if opens > now:
            return Allowance(0, until=opens)
        room: int | None = None
        for part, state in meter.cells:
            left = part.allowed - part.used(state, len(meter.leases), now)
            if isinstance(part, Rate):
                left -= meter.open
            free = min(free, left)
            if isinstance(part, Rate):
                room = left if room is None else min(room, left)
        return Allowance(free, room, most=self._most)

    async def started(self, jobs: list[JobRecord], now: Micros) -> None:
        meter = self._meter
        for job in jobs:
            cost = cost_under(job.cost, "")
            meter.charge(job.id, cost, now)
            if self.counts_beginnings and job.id not in self._open:
                meter.take_out(cost, now)
                meter.open_up(cost)
                self._open[job.id] = cost

    @property
    def counts_beginnings(self) -> bool:
        return self._most is not None

    def began(self, job_id: str, now: Micros) -> None:
        cost = self._open.pop(job_id, 0)
        if cost:
            self._meter.open_up(-cost)
            self._meter.begin(cost, now)

    def wait_for_room(self, cost: int, now: Micros) -> Micros:
        return self._meter.opens_at(cost)

    async def ended(self, job_id: str) -> None:
        self._meter.open_up(-self._open.pop(job_id, 0))
        self._meter.leases.discard(job_id)


_turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
"""One lock per limiter object, for as long as a worker holds both."""


class ObjectPace(Pace):
    """A limiter object. Its parts that are named limits of this store are decided inside the claim;
    every other is asked before every claim, one job at a time, and notified of every start and end.
    """

    def __init__(self, limiter: LimiterProtocol, store: Store) -> None:
        self._limiter = limiter
        self._store = store
        self._wait: Micros = 0
        self._not_before: Micros = 0
        self._notified: dict[str, list[LimiterProtocol]] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._parts = parts_of(limiter, store)

    @property
    def also(self) -> tuple[str, ...]:  # type: ignore[override]  # a limiter may grow while it is used
        return tuple(dict.fromkeys(limiter.name for limiter in self._parts.named))

    def turn(self) -> AbstractAsyncContextManager[Any]:
        self._parts = parts_of(self._limiter, self._store)
        return self._turn() if self._parts.own else nullcontext()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Several workers that share an object must not ask it at the same time."""
        async with AsyncExitStack() as held:
            # In one order everywhere, so that two workers never wait for each other.
            for key in sorted({id(limiter) for limiter in self._parts.own}):
                if key not in self._locks:
                    self._locks[key] = _turns.setdefault(key, asyncio.Lock())
                await held.enter_async_context(self._locks[key])
            yield

    async def allows(self, free: int, now: Micros) -> Allowance:
        if now < self._not_before:
            return Allowance(0, until=self._not_before)
        for limiter in self._parts.named:
            await limiter.write_declarations()
        if not self._parts.own:
            return Allowance(free)
        when = now
        try:
            if await self._may_proceed():
                self._wait = 0
                return Allowance(1)
            when = await self._next_time()
        except (Exception, asyncio.CancelledError) as error:
            if is_cancellation(error):
                raise
            self._log(self._limiter, error, "nothing is claimed until it answers")
        # A limiter that refuses without naming a later time is asked less and less often.
        self._wait = min(max(self._wait * 2, SHORTEST_WAIT), LONGEST_WAIT)
        self._not_before = when if when > now else now + self._wait
        return Allowance(0, until=self._not_before)

    async def _may_proceed(self) -> bool:
        for limiter in self._parts.own:
            if not await limiter.can_proceed():
                return False
        return True

    async def _next_time(self) -> Micros:
        option = "get_next_available_time()"
        return max([from_datetime(await own.get_next_available_time(), option=option) for own in self._parts.own])

    async def started(self, jobs: list[JobRecord], now: Micros) -> None:
        for job in jobs if self._parts.own else ():
            # A job that was claimed anew while it runs here has started once.
            if job.id not in self._notified:
                notified = self._notified[job.id] = list[LimiterProtocol]()
                await self._notify("record_job_start", self._parts.own, notified)

    async def ended(self, job_id: str) -> None:
        notified = self._notified.pop(job_id, None)
        if notified:
            # The end of a job may have opened it: ask again.
            self._not_before = 0
            await self._notify("record_job_completion", notified, [])

    async def declare_again(self) -> bool:
        named = self._parts.named
        return bool(named) and all([await limiter.declare_again() for limiter in named])

    async def _notify(self, what: str, limiters: Sequence[LimiterProtocol], done: list[LimiterProtocol]) -> None:
        """Notify all to the end, also when we are cancelled: half a start could not be taken back."""
        notifying = asyncio.ensure_future(self._notify_each(what, limiters, done))
        try:
            await asyncio.shield(notifying)
        except asyncio.CancelledError:
            await asyncio.wait([notifying], timeout=LAST_WORDS)
            notifying.cancel()
            raise

    async def _notify_each(self, what: str, limiters: Sequence[LimiterProtocol], done: list[LimiterProtocol]) -> None:
        """What one of them raises concerns no other."""
        for limiter in limiters:
            try:
                await getattr(limiter, what)()
            except (Exception, asyncio.CancelledError) as error:
                if is_cancellation(error):
                    raise
                self._log(limiter, error, "the job goes on", f" in {what}")
            done.append(limiter)

    def _log(self, limiter: object, error: BaseException, so: str, where: str = "") -> None:
        log_safely(log, logging.ERROR, f"the limiter {show(limiter)} failed{where}; {so}", error=error)


def is_cancellation(error: BaseException) -> bool:
    """True when this task is cancelled; False for an error, also when something inside of a limiter was cancelled."""
    task = asyncio.current_task()
    return is_a(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def make_pace(limiter: object, store: Store) -> Pace:
    """The pace of a worker: from a kind, a named limiter, or an object with the six methods."""
    if limiter is None:
        return Pace()
    if isinstance(limiter, Kind) and not inspect.isclass(limiter):
        return KindPace(limiter)
    return ObjectPace(check_limiter(limiter, option="limiter", expected="a kind, a Limiter"), store)
