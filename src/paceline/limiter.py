"""Limiter: the same limits for any code, without jobs."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Any

from paceline.checks import check_count, check_name
from paceline.clock import NEVER, SECOND, Micros, from_datetime, to_datetime
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError
from paceline.lifecycle.declare import Declarations
from paceline.lifecycle.pace import LimiterProtocol, check_limiter
from paceline.limits import Backoff, Kind, Limit, Unlimited
from paceline.limits.composite import check_kind
from paceline.options import new_id
from paceline.stores import shared_store
from paceline.stores.interface import Extended, Grant, Hold, Lease, Store, Target
from paceline.upkeep.heartbeat import Heartbeat

LEASE: Micros = 30 * SECOND
"""A permit's slot comes back this long after its process died."""

# Permits are named by the process and a number: unique over processes, and cheap to make.
_new_permit_id = map(f"permit:{new_id()}:{{}}".format, itertools.count()).__next__


class Permit:
    """The right to have started. `await permit.release()`, or `async with permit:`, frees its slot."""

    __slots__ = ("_id", "_keeper")

    def __init__(self, permit_id: str, keeper: _Keeper | None) -> None:
        self._id = permit_id
        self._keeper = keeper

    async def release(self) -> None:
        """Free the slot; twice is once. What was counted as a start stays counted."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.give_back(self._id)

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.release()


_FREE = Permit("", None)


class _Keeper:
    """Renews the permits that this process holds in one store, while it holds any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, None] = {}
        self._heartbeat: Heartbeat | None = None
        self._idle_beats = 0
        self._lock = threading.Lock()

    def keep(self, permit_id: str) -> None:
        with self._lock:
            self._held[permit_id] = None
            self._idle_beats = 0
            if self._heartbeat is None:
                name = f"permits:{new_id()}"
                self._heartbeat = Heartbeat(self._store, name, LEASE, self._leases, self._heard, lambda: None)
                self._heartbeat.start()

    async def give_back(self, permit_id: str) -> None:
        self._held.pop(permit_id, None)
        await self._store.give_back([permit_id])
        if not self._held and self._store.clock.virtual:
            self._end()

    def _leases(self) -> list[Lease]:
        """Asked at every beat, from its thread; a keeper that holds nothing for two beats ends."""
        with self._lock:
            self._idle_beats = 0 if self._held else self._idle_beats + 1
            if self._idle_beats >= 2:
                self._end()
            return [Lease(permit_id, 0) for permit_id in self._held]

    def _end(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.end()

    def _heard(self, heard: Extended) -> None:
        for permit_id in heard.lost:
            self._held.pop(permit_id, None)


_keepers: weakref.WeakKeyDictionary[Store, _Keeper] = weakref.WeakKeyDictionary()


def _keeper(store: Store) -> _Keeper:
    keeper = _keepers.get(store)
    if keeper is None:
        keeper = _keepers[store] = _Keeper(store)
    return keeper


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

    def _permit(self, store: Store, permit_id: str, grant: Grant) -> Permit:
        """The permit of a grant; one that holds no slot has nothing to give back."""
        if not grant.leased:
            return _FREE
        _keeper(store).keep(permit_id)
        return Permit(permit_id, _keeper(store))

    async def _wait_for_permit(self, targets: tuple[Target, ...], timeout: Micros | None) -> Permit:
        store = await self.declarations.ready()
        clock = store.clock
        deadline = NEVER if timeout is None else clock.now() + timeout
        # First come, first served: only the first waiter asks, so a big cost is not overtaken for ever.
        line = self._lines.setdefault((asyncio.get_running_loop(), targets[:1] and targets[0].group), asyncio.Lock())
        if not await _locked_before(line, deadline, store):
            raise TimeoutError("no permit within the timeout; nothing was charged")
        listener = store.listen(())
        permit_id = _new_permit_id()
        grant = None
        try:
            while True:
                listener.event.clear()
                grant = await store.acquire(targets, permit_id, LEASE, waits=True)
                if grant.granted:
                    return self._permit(store, permit_id, grant)
                if clock.now() >= deadline:
                    raise TimeoutError("no permit within the timeout; nothing was charged")
                await clock.wait(listener.event, min(grant.until, deadline, clock.now() + LEASE))
        finally:
            listener.close()
            line.release()
            if grant is not None and not grant.granted:
                await store.give_back([permit_id])


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


class Limiter(_Acquires):
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
        self._started: deque[str] = deque()
        self._unit = (Target(name),)
        self._spare_id = ""
        self._unlimited = isinstance(kind, Unlimited)
        declared = self.declarations.declared.get(name)
        if self._unlimited and declared is not None and declared.kind != kind:
            raise ConfigError(f"limit {name!r} is declared as {declared!r}, not as {kind!r}", option="kind", value=kind)
        if kind is not None and not self._unlimited:
            self.declarations.add(Limit.for_code(name, check_kind(kind, option="kind"), backoff))

    def __repr__(self) -> str:
        return f"<Limiter {self.name!r}>"

    def limits_in(self, store: Store) -> tuple[str, ...] | None:
        """The limits of this store it stands for: a claim on that store checks them itself."""
        if self._unlimited:
            return ()
        return (self.name,) if store is self.declarations.store else None

    async def write_declarations(self) -> None:
        """Make sure the store knows the limit."""
        await self.declarations.ready()

    # permits

    def acquire(self, cost: int = 1, *, group: str | None = None, timeout: Duration | None = None) -> Acquiring:
        """Wait exactly as long as needed; `TimeoutError` when that is too long, and nothing is charged."""
        limit = None if timeout is None else parse_duration(timeout, option="timeout", zero=True)
        return Acquiring(self, self._targets(cost, group), limit)

    async def try_acquire(self, cost: int = 1, *, group: str | None = None) -> Permit | None:
        """A permit, or None when refused; nothing is charged then."""
        targets = self._unit if cost == 1 and group is None and cost is not True else self._targets(cost, group)
        if self._unlimited:
            return _FREE
        declarations = self.declarations
        if declarations.waiting:
            await declarations.ready()
        store = declarations.store
        # A name that is not used is kept: making one costs as much as a refusal.
        permit_id, self._spare_id = self._spare_id or _new_permit_id(), ""
        grant = await store.acquire(targets, permit_id, LEASE)
        if grant.leased:
            return self._permit(store, permit_id, grant)
        self._spare_id = permit_id
        return _FREE if grant.granted else None

    def _targets(self, cost: int, group: str | None) -> tuple[Target, ...]:
        check_count(cost, option="cost")
        if group is not None:
            check_name(group, option="group")
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
        permit_id = _new_permit_id()
        grant = await store.acquire(self._unit, permit_id, LEASE, force=True)
        if grant.leased:
            _keeper(store).keep(permit_id)
            self._started.append(permit_id)

    async def record_job_completion(self) -> None:
        """Free the oldest start recorded by this object; without one nothing happens."""
        if self._started:
            await _keeper(self.declarations.store).give_back(self._started.popleft())

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


class CompositeLimiter:
    """Several limiters at once: all must agree, the latest next time wins. `add_limiter` works at run time."""

    def __init__(self, limiters: Iterable[LimiterProtocol] = ()) -> None:
        self._limiters: list[LimiterProtocol] = []
        for limiter in limiters:
            self.add_limiter(limiter)

    def __repr__(self) -> str:
        return f"CompositeLimiter({self._limiters!r})"

    def add_limiter(self, limiter: LimiterProtocol) -> None:
        """One more that must agree, from now on."""
        if limiter is self:
            raise ConfigError("limiter: a CompositeLimiter cannot be part of itself", option="limiter", value=limiter)
        self._limiters.append(check_limiter(limiter, option="limiter"))

    def limits_in(self, store: Store) -> tuple[str, ...] | None:
        """The limits of this store it is made of, or None when a part is something else."""
        names: list[str] = []
        for limiter in self._limiters:
            of_part = getattr(limiter, "limits_in", None)
            found = None if of_part is None else of_part(store)
            if found is None:
                return None
            names.extend(found)
        return tuple(dict.fromkeys(names))

    async def write_declarations(self) -> None:
        """Make sure the store knows the limits it is made of."""
        for limiter in self._limiters:
            await limiter.write_declarations()  # type: ignore[attr-defined]  # only asked of those that live in a store

    async def can_proceed(self) -> bool:
        """True when every part says so; the first refusal ends the question."""
        for limiter in self._limiters:
            if not await limiter.can_proceed():
                return False
        return True

    async def record_job_start(self) -> None:
        """Tell every part."""
        for limiter in self._limiters:
            await limiter.record_job_start()

    async def record_job_completion(self) -> None:
        """Tell every part."""
        for limiter in self._limiters:
            await limiter.record_job_completion()

    async def get_next_available_time(self) -> datetime:
        """The latest of the parts' times; now when there are none."""
        times = [await limiter.get_next_available_time() for limiter in self._limiters]
        return max(times, default=datetime.now().astimezone())

    async def set_next_available_time(self, when: datetime) -> None:
        """Tell every part."""
        from_datetime(when, option="when")
        for limiter in self._limiters:
            await limiter.set_next_available_time(when)

    async def clear(self) -> None:
        """Clear every part."""
        for limiter in self._limiters:
            await limiter.clear()
