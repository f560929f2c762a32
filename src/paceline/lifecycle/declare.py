"""Limits that code declares: collected without touching the store, written before the first call takes effect."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping

from paceline.errors import ConfigError
from paceline.limits import Limit
from paceline.stores.interface import Store

log = logging.getLogger("paceline.limits")

_users: weakref.WeakKeyDictionary[Store, weakref.WeakSet[Declarations]] = weakref.WeakKeyDictionary()
_NOBODY: weakref.WeakSet[Declarations] = weakref.WeakSet()


class Declarations:
    """What one app, queue, worker or limiter declares; `await ready()` before anything that touches the store."""

    __slots__ = ("__weakref__", "_pending", "_shares", "closed", "costed", "declared", "store", "waiting")

    def __init__(self, store: Store, limits: Iterable[Limit] = (), *, shares: bool = False) -> None:
        self._shares = shares
        """True for an app: the store stays open while another app uses it."""
        self.store = store
        self.declared: dict[str, Limit] = {}
        self._pending: dict[str, Limit] = {}
        self.waiting = True
        """True while the store is not open or a declaration is not written."""
        self.closed = False
        self.costed: set[str] = set()
        """Names in costs of jobs that were looked up once."""
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

    def restate(self, name: str, limit: Limit | None = None) -> bool:
        """Somebody dropped a limit that this program declares: it is written again. False when it declares none."""
        limit = self.declared.setdefault(name, limit) if limit is not None else self.declared.get(name)
        if limit is None:
            return False
        self._pending[name] = limit
        self.waiting = True
        return True

    def forget(self, name: str) -> None:
        """The limit was dropped: it may be declared anew."""
        self.declared.pop(name, None)
        self._pending.pop(name, None)

    async def warn_of_costs(self, cost: Mapping[str, int], within: object = None) -> None:
        """A cost for a limit that nobody declared is not charged: say so once, it may be misspelt."""
        unknown = cost.keys() - self.costed - self.declared.keys()
        self.costed.update(cost)
        if not unknown:
            return
        known = {limit.name for limit in await self.store.limits(within)} | self.declared.keys()
        for name in sorted(unknown - known):
            log.warning(
                "a job's cost names the limit %r, which does not exist, so it charges nothing; declared are: %s",
                name,
                ", ".join(sorted(known)) or "none",
            )

    async def close(self) -> None:
        """Accept nothing more; whoever is the last to use the store closes it. Reading opens it again."""
        self.closed = self.waiting = True
        users = _users.get(self.store, _NOBODY)
        users.discard(self)
        if not users:
            await self.store.close()

    def reopen(self) -> None:
        """Accept jobs again; limits are declared anew, because the store may have been emptied meanwhile."""
        self.closed = False
        self._pending.update(self.declared)
        self.waiting = True

    async def ready(self, within: object = None) -> Store:
        """The store, open and knowing every declared limit."""
        if not self.waiting:
            return self.store
        await self.store.open(within)
        if self._shares and not self.closed:
            _users.setdefault(self.store, weakref.WeakSet()).add(self)
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
