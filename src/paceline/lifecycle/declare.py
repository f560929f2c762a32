"""Limits that code declares: collected without touching the store, written before the first call takes effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from paceline.errors import ConfigError
from paceline.limits import Limit
from paceline.stores.interface import Store

log = logging.getLogger("paceline.limits")


class Declarations:
    """What one app, queue, worker or limiter declares; `await ready()` before anything that touches the store."""

    __slots__ = ("_pending", "closed", "declared", "store", "waiting")

    def __init__(self, store: Store, limits: Iterable[Limit] = ()) -> None:
        self.store = store
        self.declared: dict[str, Limit] = {}
        self._pending: dict[str, Limit] = {}
        self.waiting = True
        """True while the store is not open or a declaration is not written."""
        self.closed = False
        for limit in limits:
            self.add(limit)

    def add(self, limit: Limit) -> Limit:
        """Declare a limit; twice with the same meaning is once, with another meaning an error."""
        known = self.declared.get(limit.name)
        if known is not None and known.detached and not limit.detached and known.kind == limit.kind:
            known = None
        if known is not None and limit.detached and known.kind == limit.kind:
            return known
        if known is not None and known != limit:
            raise ConfigError(
                f"limit {limit.name!r} is declared twice with different meanings: {known!r} and {limit!r}; "
                "use two names, or app.override() to change numbers at run time",
                option="name",
                value=limit.name,
            )
        if known is None:
            self.declared[limit.name] = self._pending[limit.name] = limit
            self.waiting = True
        return limit

    def forget(self, name: str) -> None:
        """The limit was dropped: it may be declared anew."""
        self.declared.pop(name, None)
        self._pending.pop(name, None)

    async def ready(self, within: object = None) -> Store:
        """The store, open and knowing every declared limit."""
        if not self.waiting:
            return self.store
        await self.store.open()
        # Until they are written they stay pending: another call that comes meanwhile writes them too, and waits.
        pending = list(self._pending.values())
        if pending and within is not None:
            # The caller may undo his transaction, and the limits with it: they are declared once more by the next call.
            await self.store.set_limits(pending, within)
            return self.store
        if pending:
            for change in await self.store.set_limits(pending):
                log.warning(
                    "limit %r was %r and is now %r for everybody: another program declared the former",
                    change.new.name,
                    change.old,
                    change.new,
                )
        for limit in pending:
            if self._pending.get(limit.name) is limit:
                del self._pending[limit.name]
        self.waiting = bool(self._pending)
        return self.store
