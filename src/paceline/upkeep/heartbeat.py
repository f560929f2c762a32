"""Keeps leases alive from a thread of its own, so that a blocked event loop does not lose jobs by accident."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

from paceline.clock import SECOND, Micros
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

    async def beat(self) -> Extended:
        """Renew now and act on what is heard."""
        heard = await self._store.extend(self._worker, list(self._leases()), self._lease)
        self._heard(heard)
        return heard

    async def _beat_on_clock(self) -> None:
        clock = self._store.clock
        never = asyncio.Event()
        pause = self._lease // 3
        proven_at = clock.now()
        while True:
            await clock.wait(never, clock.now() + pause)
            pause = self._lease // 3
            if not self._leases():
                continue
            asked_at = clock.now()
            try:
                await self.beat()
                proven_at = asked_at
            except Exception as error:
                pause = self._failed(error, (asked_at - proven_at) / self._lease, self._silent)

    def _failed(self, error: Exception, share: float, silent: Callable[[], None]) -> Micros:
        """A beat failed: try again soon, and say so when too much of the lease is gone to trust it."""
        log.warning("the leases of worker %s could not be renewed: %s", self._worker, error)
        if share > 2 / 3:
            silent()
        return self._lease // 10

    def _beat_in_thread(self, main: asyncio.AbstractEventLoop) -> None:
        loop = asyncio.new_event_loop()
        pause = self._lease // 3
        proven_at = time.monotonic()
        while not self._stop.wait(pause / SECOND):
            pause = self._lease // 3
            leases = list(self._leases())
            # Measured from before the call: the store's lease cannot end earlier than this one.
            asked_at = time.monotonic()
            try:
                heard = loop.run_until_complete(self._store.extend(self._worker, leases, self._lease))
            except Exception as error:
                share = (asked_at - proven_at) * SECOND / self._lease if leases else 0
                pause = self._failed(error, share, lambda: _tell(main, self._silent))
                continue
            proven_at = asked_at
            if heard.lost or heard.cancel:
                _tell(main, lambda heard=heard: self._heard(heard))  # type: ignore[misc]
        loop.close()


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)
