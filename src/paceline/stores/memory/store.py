"""The memory store: every call is one step under one lock; it lives and dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from paceline.clock import Clock, SystemClock
from paceline.codec import MAX_PAYLOAD
from paceline.errors import ConfigError
from paceline.forks import reset_when_forked
from paceline.job import NewJob
from paceline.stores.interface import About, Inserted, StartRecord
from paceline.stores.steps import read
from paceline.stores.steps.sleepers import Sleepers
from paceline.stores.steps.state import State
from paceline.stores.steps.store import StepStore
from paceline.text import show

T = TypeVar("T")


class MemoryStore(StepStore):
    """Jobs and limits in this process: `memory://`. Safe to use from several threads and event loops."""

    never_blocks = True
    address = "memory://"

    def __init__(
        self, *, namespace: str = "default", clock: Clock | None = None, max_payload: int = MAX_PAYLOAD
    ) -> None:
        self.clock = clock or SystemClock()
        self.namespace = namespace
        self.max_payload = max_payload
        self.sleepers = Sleepers()
        self.state = State(self.clock.now, self.sleepers)
        self.state.registry.least_guard = self.least_guard
        self._lock = threading.RLock()
        reset_when_forked(self)

    def __repr__(self) -> str:
        return f"<MemoryStore {self.namespace!r}>"

    async def open(self, within: object = None) -> None:
        return None

    async def about(self) -> About:
        return About("memory of this process", {}, ("it ends with the process: nothing survives a restart",))

    async def close(self) -> None:
        # What is in memory stays until the process ends: others may use the same store.
        self.sleepers.close()

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if within is not None:
            raise ConfigError(
                f"within={show(within)} is wrong: the memory store has no transactions to join", option="within"
            )
        return await super().insert(jobs)

    async def _change(self, step: Callable[..., T], *args: Any) -> T:
        with self._lock:
            return step(self.state, *args)

    _look = _change

    def before_fork(self) -> None:
        # No step is half done in the copy that the child gets.
        self._lock.acquire()

    def after_fork(self) -> None:
        self._lock.release()

    def forked(self) -> None:
        """A child has a copy of all jobs and limits, and shares nothing with its parent from then on."""
        self._lock = threading.RLock()
        self.sleepers.forked()

    def all_starts(self) -> list[StartRecord]:
        """The log of starts of every queue."""
        with self._lock:
            return read.all_starts(self.state)
