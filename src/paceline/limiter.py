"""Limiter: the same limits for any code, without jobs."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Any

from paceline.checks import check_count, check_name, check_optional_name
from paceline.clock import NEVER, SECOND, Micros, from_datetime, since_boot, to_datetime
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError, StoreUnavailable, require
from paceline.forks import reset_when_forked
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.outage import Outage
from paceline.lifecycle.pace import SIX, HasParts, LimiterProtocol, Parts, check_limiter, is_cancellation, parts_of
from paceline.lifecycle.tell import log_failed
from paceline.limits import Backoff, Kind, Limit, Unlimited
from paceline.limits.composite import check_kind
from paceline.options import new_permit_id
from paceline.stores import shared_store
from paceline.stores.interface import Grant, Hold, Store, Target
from paceline.upkeep.permits import FREE, LEASE, Permit, keeper_of

log = logging.getLogger("paceline.limits")


class Acquiring:
    """`async with limiter.acquire():` waits exactly as long as needed, then holds a permit for the block."""

    __slots__ = ("_limiter", "_permit", "_targets", "_timeout")

    def __init__(self, limiter: _Acquires, targets: tuple[Target, ...], timeout: Micros | None) -> None:
        self._limiter = limiter
        self._targets = targets
        self._timeout = timeout
        self._permit: Permit | None = None

    async def __aenter__(self) -> Permit:
        self._permit = await self._limiter._wait_for_permit(self._targets, self._timeout)
        return self._permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._permit is not None:
            await self._permit.release()


class _Acquires:
    """Asking a store for permits, one waiter after the other."""

    declarations: Declarations
    _lines: weakref.WeakValueDictionary[Any, asyncio.Lock]
    _outage: Outage

    def _permit(self, store: Store, permit_id: str, grant: Grant) -> Permit:
        """The permit of a grant; one that holds no slot has nothing to give back."""
        if not grant.leased:
            return FREE
        keeper_of(store).keep(permit_id)
        return Permit(permit_id, keeper_of(store))

    async def _grant(self, store: Store, targets: tuple[Target, ...], permit_id: str, **how: bool) -> Grant:
        """Ask the store. Whoever is cancelled meanwhile, or gets no answer, may hold a slot: it is given back."""
        try:
            sent_at = since_boot()
            grant = await store.acquire(targets, permit_id, LEASE, **how)
            if self._came_late(store, grant, sent_at, **how):
                grant = await store.acquire(targets, permit_id, LEASE, late=grant.now)
                if grant.granted:
                    keeper_of(store).begin(permit_id)
        except BaseException as error:
            if not isinstance(error, ConfigError):
                keeper_of(store).give_back_later(permit_id)
            raise
        log_failed(grant.failed)
        return grant

    def _came_late(self, store: Store, grant: Grant, sent_at: Micros, force: bool = False, waits: bool = False) -> bool:
        """True when whoever asked would begin later than the guard allows; what is only recorded has begun before."""
        if not grant.granted or grant.guard >= NEVER or force or store.clock.virtual:
            return False
        return since_boot() - sent_at - grant.waited > grant.guard

    async def _wait_for_permit(self, targets: tuple[Target, ...], timeout: Micros | None) -> Permit:
        store = await self.declarations.ready()
        clock = store.clock
        deadline = NEVER if timeout is None else clock.now() + timeout
        # First come, first served: only the first waiter asks, so a big cost is not overtaken for ever.
        line = self._lines.setdefault((asyncio.get_running_loop(), targets[:1] and targets[0].group), asyncio.Lock())
        if not await _locked_before(line, deadline, store):
            raise TimeoutError("no permit within the timeout; nothing was charged")
        listener = store.listen(())
        permit_id = new_permit_id()
        grant = None
        try:
            while True:
                listener.event.clear()
                grant = None
                try:
                    grant = await self._grant(store, targets, permit_id, waits=True)
                except StoreUnavailable as error:
                    if clock.now() >= deadline or self.declarations.closed:
                        raise
                    # It may have been granted, and is given back: the next try has a name of its own.
                    permit_id, until = new_permit_id(), self._outage.failed(error, clock.now())
                else:
                    if self._outage.lasts:
                        self._outage.worked(clock.now())
                    if grant.granted:
                        return self._permit(store, permit_id, grant)
                    if clock.now() >= deadline:
                        raise TimeoutError("no permit within the timeout; nothing was charged")
                    until = grant.until
                await clock.wait(listener.event, min(until, deadline, clock.now() + LEASE))
        finally:
            listener.close()
            line.release()
            if grant is not None and not grant.granted:
                await keeper_of(store).give_back(permit_id)


async def _locked_before(line: asyncio.Lock, deadline: Micros, store: Store) -> bool:
    """Take the lock, giving up at an instant of the store's clock."""
    if deadline >= NEVER or not line.locked():
        await line.acquire()
        return True
    got = asyncio.Event()
    taking = asyncio.ensure_future(line.acquire())
    taking.add_done_callback(lambda _: got.set())
    try:
        in_time = await store.clock.wait(got, deadline)
    except BaseException:
        _give_up(taking, line)
        raise
    if not in_time:
        _give_up(taking, line)
    return in_time


def _give_up(taking: asyncio.Future[Any], line: asyncio.Lock) -> None:
    if taking.done() and not taking.cancelled():
        line.release()
    else:
        taking.cancel()


class Limiter(_Acquires, HasParts):
    """A named limit for any code: `async with limiter.acquire(): ...`.

    The same name is the same counter as the limit of that name, in every process that shares the store.
    """

    def __init__(
        self,
        name: str,
        kind: Kind | None = None,
        *,
        store: str | Store,
        backoff: Backoff | None = None,
        declarations: Declarations | None = None,
    ) -> None:
        self.name = check_name(name, option="name")
        self.declarations = declarations or Declarations(shared_store(store))
        self._lines = weakref.WeakValueDictionary()
        self._outage = Outage(
            log,
            f"limiter {name!r} cannot ask; it goes on when the store is back",
            f"limiter {name!r}: the store is back",
        )
        self._started: deque[str] = deque()
        self._unit = (Target(self.name),)
        self._spare_id = ""
        self._unlimited = isinstance(kind, Unlimited)
        reset_when_forked(self)
        declared = self.declarations.declared.get(name)
        if self._unlimited and declared is not None and declared.kind != kind:
            raise ConfigError(f"limit {name!r} is declared as {declared!r}, not as {kind!r}", option="kind", value=kind)
        self._own: Limit | None = None
        if kind is not None and not self._unlimited:
            self._own = self.declarations.add(Limit.for_code(name, check_kind(kind, option="kind"), backoff))

    def __repr__(self) -> str:
        return f"<Limiter {self.name!r}>"

    def forked(self) -> None:
        """Permits that were taken, and the id of the next one, are the parent's."""
        self._spare_id, self._started = "", deque()

    def parts_in(self, store: Store) -> Parts:
        """A claim on the store of its limit decides it; for any other store it is an object like a user's own."""
        if self._unlimited:
            return Parts()
        return Parts(named=(self,)) if store is self.declarations.store else Parts(own=(self,))

    async def write_declarations(self) -> None:
        """Make sure the store knows the limit."""
        await self.declarations.ready()

    async def declare_again(self) -> bool:
        """Somebody dropped the limit: what this program declares of it holds. False when it declares nothing."""
        if self._unlimited or not self.declarations.restate(self.name, self._own):
            return False
        await self.declarations.ready()
        return True

    # permits

    def acquire(self, cost: int = 1, *, group: str | None = None, timeout: Duration | None = None) -> Acquiring:
        """Wait exactly as long as needed; `TimeoutError` when that is too long, and nothing is charged.

        A store that goes away is waited for; one that is still away when the timeout is over is a `StoreUnavailable`.
        """
        limit = None if timeout is None else parse_duration(timeout, option="timeout", zero=True)
        return Acquiring(self, self._targets(cost, group), limit)

    async def try_acquire(self, cost: int = 1, *, group: str | None = None) -> Permit | None:
        """A permit, or None when refused; nothing is charged then."""
        targets = self._unit if cost == 1 and group is None and cost is not True else self._targets(cost, group)
        if self._unlimited:
            return FREE
        declarations = self.declarations
        if declarations.waiting:
            await declarations.ready()
        store = declarations.store
        # A name that is not used is kept: making one costs as much as a refusal.
        permit_id, self._spare_id = self._spare_id or new_permit_id(), ""
        grant = await self._grant(store, targets, permit_id)
        if grant.leased:
            return self._permit(store, permit_id, grant)
        self._spare_id = permit_id
        return FREE if grant.granted else None

    def _targets(self, cost: int, group: str | None) -> tuple[Target, ...]:
        cost = check_count(cost, option="cost")
        group = check_optional_name(group, option="group")
        return () if self._unlimited else (Target(self.name, group, cost),)

    # the six methods

    async def can_proceed(self) -> bool:
        """True when a start would be admitted now."""
        return self._unlimited or (usage := await self._usage()).opens_at <= usage.now

    async def record_job_start(self) -> None:
        """Count a start, also when the limit is full: what happened, happened."""
        if self._unlimited:
            return
        store = await self.declarations.ready()
        permit_id = new_permit_id()
        grant = await self._grant(store, self._unit, permit_id, force=True)
        if grant.leased:
            keeper_of(store).keep(permit_id)
            self._started.append(permit_id)

    async def record_job_completion(self) -> None:
        """Free the oldest start recorded by this object; without one nothing happens."""
        if self._started:
            await keeper_of(self.declarations.store).give_back(self._started.popleft())

    async def get_next_available_time(self) -> datetime:
        """When the next start is admitted; now if free. A slot that is taken is looked for again in a second."""
        if self._unlimited:
            return to_datetime((await self.declarations.ready()).clock.now())
        usage = await self._usage()
        if usage.opens_at >= NEVER:
            return to_datetime(usage.now + SECOND)
        return to_datetime(max(usage.opens_at, usage.now))

    async def set_next_available_time(self, when: datetime) -> None:
        """Let nobody start before this time; an earlier one than before is ignored."""
        until = from_datetime(when, option="when")
        if not self._unlimited:
            await self._hold(until)

    async def clear(self) -> None:
        """Forget starts and holds; live leases stay."""
        if not self._unlimited:
            await (await self.declarations.ready()).clear(self.name, None)

    async def _hold(self, until: Micros) -> None:
        await (await self.declarations.ready()).hold([Hold(limit=self.name, until=until)])

    async def _usage(self) -> Any:
        return await (await self.declarations.ready()).usage(self.name, None)


class CompositeLimiter(HasParts):
    """Several limiters at once: all must agree, the latest next time wins. `add_limiter` works at run time."""

    def __init__(self, limiters: Iterable[LimiterProtocol] = ()) -> None:
        self._limiters: list[LimiterProtocol] = []
        require(isinstance(limiters, Iterable), "limiters", limiters, "a list of limiters")
        for limiter in limiters:
            self.add_limiter(limiter)

    def __repr__(self) -> str:
        return f"CompositeLimiter({self._limiters!r})"

    def add_limiter(self, limiter: LimiterProtocol) -> None:
        """One more that must agree, from now on."""
        if limiter is self or (isinstance(limiter, CompositeLimiter) and limiter._contains(self)):
            raise ConfigError("limiter: a CompositeLimiter cannot be part of itself", option="limiter", value=limiter)
        self._limiters.append(check_limiter(limiter, option="limiter"))

    def _contains(self, other: CompositeLimiter) -> bool:
        inner = [limiter for limiter in self._limiters if isinstance(limiter, CompositeLimiter)]
        return any(limiter is other or limiter._contains(other) for limiter in inner)

    def parts_in(self, store: Store) -> Parts:
        """The parts of all its limiters; a subclass with other rules is asked as a whole where it is asked at all."""
        parts = [parts_of(limiter, store) for limiter in self._limiters]
        own = tuple(each for part in parts for each in part.own)
        if own and any(getattr(type(self), name) is not getattr(CompositeLimiter, name) for name in SIX):
            return Parts(own=(self,))
        return Parts(tuple(each for part in parts for each in part.named), own)

    async def can_proceed(self) -> bool:
        """True when every part says so; the first refusal ends the question."""
        for limiter in self._limiters:
            if not await limiter.can_proceed():
                return False
        return True

    async def record_job_start(self) -> None:
        """Notify every part."""
        await self._each("record_job_start")

    async def record_job_completion(self) -> None:
        """Notify every part."""
        await self._each("record_job_completion")

    async def get_next_available_time(self) -> datetime:
        """The latest of the parts' times; now when there are none."""
        times = [await limiter.get_next_available_time() for limiter in self._limiters]
        return max(times, default=datetime.now().astimezone())

    async def set_next_available_time(self, when: datetime) -> None:
        """Pass it on to every part."""
        from_datetime(when, option="when")
        await self._each("set_next_available_time", when)

    async def clear(self) -> None:
        """Clear every part."""
        await self._each("clear")

    async def _each(self, method: str, *values: object) -> None:
        """Call every part, whatever another one raises; then the errors are the caller's."""
        errors: list[BaseException] = []
        for limiter in tuple(self._limiters):
            try:
                await getattr(limiter, method)(*values)
            except (Exception, asyncio.CancelledError) as error:
                if is_cancellation(error):
                    raise
                errors.append(error)
        if len(errors) > 1:
            raise BaseExceptionGroup(f"{len(errors)} limiters failed in {method}", errors)
        if errors:
            raise errors[0]
