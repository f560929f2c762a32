"""Keeps leases alive from a thread of its own, so that a blocked event loop does not lose jobs by accident."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from paceline.clock import SECOND, Micros, since_boot
from paceline.lifecycle.outage import Outage
from paceline.stores.interface import Extended, Lease, Store

log = logging.getLogger("paceline.worker")


class Heartbeat:
    """Renews the leases of one worker three times per lease, and says when they can no longer be trusted."""

    def __init__(
        self,
        store: Store,
        worker: str,
        lease: Micros,
        leases: Callable[[], Sequence[Lease]],
        heard: Callable[[Extended], None],
        silent: Callable[[], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._leases = leases
        self._heard = heard
        self._silent = silent
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(
            log,
            f"the leases of worker {worker} could not be renewed",
            f"the leases of worker {worker} are renewed again",
        )
        self._proven_at = self._now()

    def start(self) -> None:
        """Begin to beat: in a thread, or beside the test that moves the clock."""
        loop = asyncio.get_running_loop()
        if self._store.clock.virtual:
            self._task = loop.create_task(self._beat_on_clock())
        else:
            self._thread = threading.Thread(
                target=self._beat_in_thread, args=(loop,), name="paceline-lease", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Beat no more."""
        self._stop.set()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """End; returns when no beat is under way."""
        self.end()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5)

    @property
    def overdue(self) -> bool:
        """True when leases may have ended although we live: the process or the machine stood still for so long."""
        return self._now() - self._proven_at > self._lease and bool(self._leases())

    async def beat(self) -> Extended:
        """Renew now and act on what is heard. A lease that has ended is renewed too, unless somebody took it."""
        asked_at = self._now()
        heard = await self._store.extend(self._worker, list(self._leases()), self._lease)
        self._worked(asked_at)
        self._heard(heard)
        return heard

    async def _beat_on_clock(self) -> None:
        clock = self._store.clock
        never = asyncio.Event()
        pause = self._lease // 3
        while True:
            await clock.wait(never, clock.now() + pause)
            pause = self._lease // 3
            asked_at = clock.now()
            if not self._leases():
                self._proven_at = asked_at
                continue
            try:
                await self.beat()
            except Exception as error:
                pause = self._failed(error, asked_at, self._silent)

    def _now(self) -> Micros:
        """A clock that goes on while the machine sleeps."""
        return self._store.clock.now() if self._store.clock.virtual else since_boot()

    def _worked(self, asked_at: Micros) -> None:
        # Measured from before the call: the store's lease cannot end earlier than this one.
        self._proven_at = max(self._proven_at, asked_at)
        self._outage.worked(self._now())

    def _failed(self, error: Exception, asked_at: Micros, silent: Callable[[], None]) -> Micros:
        """A beat failed: try again soon, and say so when too much of the lease is gone to trust it."""
        self._outage.failed(error, asked_at)
        if asked_at - self._proven_at > self._lease * 2 // 3 and self._leases():
            silent()
        return self._lease // 10

    def _beat_in_thread(self, main: asyncio.AbstractEventLoop) -> None:
        loop = asyncio.new_event_loop()
        pause = self._lease // 3
        while not self._stop.wait(min(pause / SECOND, threading.TIMEOUT_MAX)):
            pause = self._lease // 3
            leases = list(self._leases())
            asked_at = self._now()
            try:
                heard = loop.run_until_complete(self._store.extend(self._worker, leases, self._lease))
            except Exception as error:
                pause = self._failed(error, asked_at, lambda: _tell(main, self._silent))
                continue
            self._worked(asked_at)
            if heard.lost or heard.cancel:
                _tell(main, lambda heard=heard: self._heard(heard))  # type: ignore[misc]
        loop.close()


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        loop.call_soon_threadsafe(what)
