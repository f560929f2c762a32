"""The stores under test and the clock they share with the tests. Every test here runs on every store.

A further store is one line in `STORES`: a function of a folder and a clock that gives an opener, a function of a
namespace that gives another handle on the data of this test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest

from paceline.clock import Micros
from paceline.stores import open_store
from paceline.stores.interface import Store

from ..servers.files import new_file
from ..servers.fresh import fresh_postgres
from ..servers.redis import empty_redis
from .builders import SECOND, us

T = TypeVar("T")
Opener: TypeAlias = Callable[[str], Store]
Handle: TypeAlias = Callable[..., AbstractAsyncContextManager[Store]]
InThreads: TypeAlias = Callable[..., list[T]]

START = 1_000_000_000 * SECOND


class ManualClock:
    """Time that moves only when a test says so."""

    virtual = True

    def __init__(self, at: Micros = START) -> None:
        self._now = at
        self._sleepers: list[tuple[Micros, asyncio.Event]] = []
        self._somebody_sleeps = asyncio.Event()

    def now(self) -> Micros:
        return self._now

    def advance(self, duration: str) -> None:
        self.to(self._now + us(duration))

    def to(self, at: Micros) -> None:
        """Go on to an instant; whoever slept until then wakes up."""
        assert at >= self._now, "only step_back() goes back"
        self._now = at
        for until, due in self._sleepers:
            if until <= at:
                due.set()

    def step_back(self, duration: str) -> None:
        """What the clock of a machine may do, and what no store may follow."""
        self._now -= us(duration)

    async def wait(self, event: asyncio.Event, until: Micros) -> bool:
        if event.is_set() or until <= self._now:
            return event.is_set()
        sleeper = (until, asyncio.Event())
        self._sleepers.append(sleeper)
        self._somebody_sleeps.set()
        waits = [asyncio.ensure_future(ear.wait()) for ear in (event, sleeper[1])]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sleepers.remove(sleeper)
            if not self._sleepers:
                self._somebody_sleeps.clear()
            for task in waits:
                task.cancel()
        return event.is_set()

    async def until_somebody_sleeps(self) -> None:
        """Let other tasks run until one of them waits on this clock."""
        await self._somebody_sleeps.wait()


def memory(folder: Path, clock: ManualClock) -> Opener:
    # A memory store is its own data: every handle of one test is the same object.
    return cache(lambda namespace: open_store("memory://", namespace=namespace, clock=clock))


def sqlite(folder: Path, clock: ManualClock) -> Opener:
    url = f"sqlite:///{new_file(folder / 'jobs.db')}"
    return lambda namespace: open_store(url, namespace=namespace, clock=clock, durability="normal")


def redis(folder: Path, clock: ManualClock) -> Opener:
    url = empty_redis()
    return lambda namespace: open_store(url, namespace=namespace, clock=clock)


STORES: dict[str, Callable[[Path, ManualClock], Opener]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": lambda folder, clock: fresh_postgres(clock),
    "redis": redis,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def opener(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Opener:
    return STORES[request.param](tmp_path, clock)


@pytest.fixture
async def store(opener: Opener) -> AsyncIterator[Store]:
    store = opener("default")
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def handle(opener: Opener, store: Store) -> Handle:
    """`async with handle() as other`: a second handle on the same data, as another process has it."""

    @asynccontextmanager
    async def open_handle(namespace: str = "default") -> AsyncIterator[Store]:
        other = opener(namespace)
        await other.open()
        try:
            yield other
        finally:
            if other is not store:
                await other.close()

    return open_handle


@pytest.fixture
def in_threads(handle: Handle) -> Callable[[int, Callable[[Store, int], Awaitable[T]]], Awaitable[list[T]]]:
    """`await in_threads(48, work)`: as many threads with their own event loops and handles, let go together."""

    async def run(number: int, work: Callable[[Store, int], Awaitable[T]]) -> list[T]:
        gate = threading.Barrier(number)
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        async def one(index: int) -> None:
            async with handle() as store:
                gate.wait(timeout=60)
                results[index] = await work(store, index)

        def thread(index: int) -> None:
            try:
                asyncio.run(one(index))
            except BaseException as error:
                errors.append(error)
                gate.abort()

        threads = [threading.Thread(target=thread, args=(index,)) for index in range(number)]
        for each in threads:
            each.start()
        for each in threads:
            await asyncio.to_thread(each.join)
        if errors:
            raise errors[0]
        return [results[index] for index in range(number)]

    return run
