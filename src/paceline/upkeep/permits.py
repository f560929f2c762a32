"""Permits: the slots that code without jobs holds, renewed while held and given back whatever happens."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

from paceline.clock import SECOND, Micros
from paceline.errors import StoreError, StoreUnavailable
from paceline.forks import abandon, reset_when_forked
from paceline.options import new_id
from paceline.stores.interface import Begun, Extended, Lease, Store
from paceline.upkeep.heartbeat import Heartbeat

log = logging.getLogger("paceline.limits")

LEASE: Micros = 30 * SECOND
"""A permit's slot comes back this long after its process died."""

TRIES = 8
"""So often a permit is given back while the store is away, over some 25 seconds; then its lease ends it."""


class Permit:
    """The right to have started. `await permit.release()`, or `async with permit:`, frees its slot."""

    __slots__ = ("_id", "_keeper")

    def __init__(self, permit_id: str, keeper: Keeper | None) -> None:
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


FREE = Permit("", None)
"""A permit that holds no slot: there is nothing to give back."""


class Keeper:
    """Renews the permits that this process holds in one store, while it holds any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heartbeat: Heartbeat | None = None
        self._idle_beats = 0
        self._lock = threading.Lock()
        reset_when_forked(self)

    def forked(self) -> None:
        """A child process holds none of its parent's permits, and renews its own."""
        abandon(self._heartbeat)
        self._held, self._heartbeat, self._lock = {}, None, threading.Lock()
        self._tasks = set()

    def keep(self, permit_id: str) -> None:
        with self._lock:
            self._held[permit_id] = None
            self._idle_beats = 0
            if self._heartbeat is None:
                name = f"permits:{new_id()}"
                self._heartbeat = Heartbeat(self._store, name, LEASE, self._leases, self._heard, lambda: None)
                self._heartbeat.start()

    def begin(self, permit_id: str) -> None:
        """Say that whoever holds an open permit begins: after it has gone on, which is when this task comes to run."""
        self._later(self._say_begun(permit_id))

    async def _say_begun(self, permit_id: str) -> None:
        try:
            await self._store.begun([Begun(permit_id, 0)])
        except StoreError as error:
            # Giving it back says so, too.
            log.info("permit %s: its beginning could not be reported: %s", permit_id, error)

    async def give_back(self, permit_id: str) -> None:
        """End a permit, or the wait for one; if that fails, or whoever calls is cancelled, it is tried again."""
        self._held.pop(permit_id, None)
        try:
            await self._store.give_back([permit_id])
        except StoreUnavailable:
            # Nobody can do better than try again: whoever ends its block need not know.
            self.give_back_later(permit_id)
        except BaseException:
            self.give_back_later(permit_id)
            raise
        if not self._held and self._store.clock.virtual:
            self._end()

    def give_back_later(self, permit_id: str) -> None:
        """End a permit that the store may have granted although its answer never came; nobody waits for that."""
        self._later(self._give_back_patiently(permit_id))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back_patiently(self, permit_id: str) -> None:
        pause = 0.1
        for _ in range(TRIES):
            try:
                await self._store.give_back([permit_id])
                return
            except StoreError as error:
                log.info("permit %s could not be given back yet: %s", permit_id, error)
            await asyncio.sleep(pause)
            pause *= 2

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


_keepers: weakref.WeakKeyDictionary[Store, Keeper] = weakref.WeakKeyDictionary()


def keeper_of(store: Store) -> Keeper:
    """The keeper of this process for one store."""
    keeper = _keepers.get(store)
    if keeper is None:
        keeper = _keepers[store] = Keeper(store)
    return keeper
