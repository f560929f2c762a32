"""A clock that a test moves: workers, limits, retries, delays and leases follow it; nothing waits for real."""

from __future__ import annotations

import asyncio
import time as real
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any

from paceline.clock import Micros, from_datetime, sleep_until, to_datetime
from paceline.durations import Duration, parse_duration
from paceline.errors import ConfigError
from paceline.queue import Start
from paceline.stores import open_store
from paceline.stores.interface import Store

START = from_datetime(datetime(2030, 1, 1, tzinfo=UTC), option="start")
PATIENCE = 0.1
"""Real seconds to wait for handlers that do something outside of virtual time, each time they make progress."""


class VirtualClock:
    """Time that stands still until `advance` moves it from one sleeper to the next."""

    virtual = True

    def __init__(self, start: Micros = START) -> None:
        self._now = start
        self._sleepers: list[tuple[Micros, int, asyncio.Future[None]]] = []
        self._count = 0
        self.running = 0
        """Handlers that workers run now."""
        self.asleep = 0
        """Handlers that sleep on this clock."""
        self.begun = 0
        """Handlers begun so far."""

    def now(self) -> Micros:
        return self._now

    async def wait(self, event: asyncio.Event, until: Micros) -> bool:
        if event.is_set() or until <= self._now:
            await asyncio.sleep(0)
            return event.is_set()
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heappush(self._sleepers, (until, self._count, wake))
        told = asyncio.ensure_future(event.wait())
        told.add_done_callback(lambda _: _wake(wake))
        try:
            await wake
        finally:
            if not told.done():
                told.cancel()
            wake.cancel()
        return event.is_set()

    def handler_begins(self) -> None:
        """A worker calls a handler."""
        self.running += 1
        self.begun += 1

    def handler_ended(self) -> None:
        """A handler ended."""
        self.running -= 1

    def next_wake(self) -> Micros | None:
        """The instant of the first sleeper, or None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move_to(self, instant: Micros) -> None:
        """Set the time and wake everyone who slept until then."""
        self._now = max(self._now, instant)
        while (at := self.next_wake()) is not None and at <= self._now:
            _wake(heappop(self._sleepers)[2])


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class VirtualTime:
    """What `virtual_time()` gives: a store whose clock moves only when told."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self._stuck: tuple[int, ...] | None = None

    def now(self) -> datetime:
        """The store's time."""
        return to_datetime(self.clock.now())

    async def advance(self, duration: Duration) -> None:
        """Let time pass: everything that is due on the way happens at its own instant, in order."""
        target = self.clock.now() + parse_duration(duration, option="duration", zero=True)
        await self.settle()
        while (at := self.clock.next_wake()) is not None and at <= target:
            self.clock.move_to(at)
            await self.settle()
        self.clock.move_to(target)
        await self.settle()

    async def sleep(self, duration: Duration) -> None:
        """Sleep in virtual time: for handlers that are to take a while."""
        until = self.clock.now() + parse_duration(duration, option="duration", zero=True)
        self.clock.asleep += 1
        try:
            await sleep_until(self.clock, until)
        finally:
            self.clock.asleep -= 1

    async def settle(self) -> None:
        """Let everything that can happen now happen, handlers in threads or on real I/O included."""
        await _until_quiet()
        since = real.monotonic()
        seen = self._marks()
        while self.clock.running > self.clock.asleep and seen != self._stuck:
            await asyncio.sleep(0.0005)
            await _until_quiet()
            if self._marks() != seen:
                since, seen = real.monotonic(), self._marks()
            elif real.monotonic() - since > PATIENCE:
                # They wait for something else: no use to be patient again before something has changed.
                self._stuck = seen

    def _marks(self) -> tuple[int, ...]:
        return self.clock.running, self.clock.asleep, self.clock.begun

    def starts(self, task: str | None = None) -> list[Start]:
        """The log of starts of all queues, in order, as the store stamped them."""
        logged = self.store.all_starts()  # type: ignore[attr-defined]
        return [
            Start(each.job_id, to_datetime(each.at), each.task, each.group, each.cost)
            for each in logged
            if task is None or each.task == task
        ]


async def _until_quiet(most: int = 10_000) -> None:
    """Run the loop until nothing is ready; where the loop does not say, a fixed number of rounds."""
    loop: Any = asyncio.get_running_loop()
    ready = getattr(loop, "_ready", None)
    for _ in range(50 if ready is None else most):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            # One more round: what polls a selector becomes ready only now.
            await asyncio.sleep(0)
            if not ready:
                return


@asynccontextmanager
async def virtual_time(
    url: str = "memory://", *, start: datetime | None = None, **options: Any
) -> AsyncIterator[VirtualTime]:
    """A store on a clock that the test moves: `async with virtual_time() as time: await time.advance("1m")`."""
    clock = VirtualClock(START if start is None else from_datetime(start, option="start"))
    if not url.startswith(("memory:", "sqlite:")):
        raise ConfigError(f"url={url!r} is wrong: virtual time works on memory and SQLite", option="url", value=url)
    store = open_store(url, clock=clock, **options)
    time = VirtualTime(store, clock)
    try:
        yield time
    finally:
        await store.close()
