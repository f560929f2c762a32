"""The SQLite store: `sqlite:///jobs.db`. Durable, no server, any number of processes on one machine."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from paceline.clock import Clock, Micros
from paceline.codec import MAX_PAYLOAD
from paceline.errors import ConfigError
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Limit
from paceline.stores.interface import About, Ask, Changed, Claim, Finish, Inserted, StartRecord
from paceline.stores.sqlite import bulk
from paceline.stores.sqlite.about import about
from paceline.stores.sqlite.clock import BootClock
from paceline.stores.sqlite.connect import DURABILITY, path_of
from paceline.stores.sqlite.ears import Ears
from paceline.stores.sqlite.state import PRUNED, SqliteState
from paceline.stores.sqlite.within import do_within
from paceline.stores.sqlite.writer import Writer
from paceline.stores.steps import claim, insert, limits, read
from paceline.stores.steps.sleepers import Sleeper, Sleepers
from paceline.stores.steps.store import StepStore

T = TypeVar("T")


class SqliteStore(StepStore):
    """Jobs and limits in one file; the decisions are those of the memory store, inside a transaction."""

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        durability: str = "full",
        clock: Clock | None = None,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        self.path, found = path_of(url)
        durability = found.pop("durability", durability)
        if durability not in DURABILITY:
            raise ConfigError(
                f'durability={durability!r} is wrong: expected "full" or "normal"',
                option="durability",
                value=durability,
            )
        if found:
            raise ConfigError(
                f"url={url!r} is wrong: unknown option {min(found)!r}; there is durability=full or normal",
                option="url",
                value=url,
            )
        self.address = url
        self.clock = clock or BootClock()
        self.namespace = namespace
        self.max_payload = max_payload
        self.never_blocks = self.clock.virtual
        self.sleepers = Sleepers()
        self.state = SqliteState(self.clock, namespace, self.sleepers)
        self._writer = Writer(self.path, durability, self.clock, self.state, self._written)
        self._ears = Ears(self.path, self.state, self._writer, self.sleepers)
        _stores.add(self)

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r} {self.namespace!r}>"

    @property
    def missed_news(self) -> int:
        """How often something happened that no message told of: the fallback found it."""
        return self._ears.missed

    async def open(self) -> None:
        await self._look(_nothing)

    async def about(self) -> About:
        return await self._look(about)

    async def close(self) -> None:
        await self._ears.close()
        await self._writer.close()
        self.sleepers.close()

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if within is not None:
            return do_within(self, within, insert.insert, jobs)
        return await super().insert(jobs)

    async def set_limits(self, declared: Sequence[Limit], within: object = None) -> list[Changed]:
        # Most programs declare what is declared already: no reason to wait for those who write.
        if await self._look(limits.are_declared, declared):
            return []
        if within is not None:
            return do_within(self, within, limits.set_limits, declared)
        return await super().set_limits(declared)

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        return await bulk.move_all(self, queue, state, move)

    async def drain(self, queue: str) -> int:
        return await bulk.drain(self, queue)

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        return await bulk.clean(self, queue, state, older_than)

    async def obliterate(self, queue: str, force: bool) -> int:
        return await bulk.obliterate(self, queue, force)

    async def prune(self) -> int:
        removed = 0
        while True:
            some = await super().prune()
            removed += some
            if some < PRUNED:
                return removed

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        return await self._change(_claim, ask, finishes)

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        self._ears.open(waits=True)
        return await super().finished(job_id, timeout)

    def listen(self, queues: Sequence[str], worker: str | None = None) -> Sleeper:
        self._ears.open()
        return super().listen(queues, worker)

    async def _change(self, step: Callable[..., T], *args: Any) -> T:
        return await self._writer.run(step, *args, writes=True)

    async def _look(self, step: Callable[..., T], *args: Any) -> T:
        return await self._writer.run(step, *args, writes=False)

    def _written(self) -> None:
        """A transaction is written: tell everybody what it was about."""
        news = self.state.sleepers
        if news.any():
            self._ears.tell(news, self.state.news_number)
            news.tell()
            news.clear()

    def all_starts(self) -> list[StartRecord]:
        """The log of starts of every queue, for tests that move the clock."""
        return self._writer.now(read.all_starts)


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store._writer.forked()
        store._ears.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _nothing(state: SqliteState) -> None:
    """Connecting is all that is wanted."""


def _claim(state: SqliteState, ask: Ask, finishes: Sequence[Finish]) -> Claim:
    for name in ask.queues:
        state.line(name)
    state.set_page(ask.slots)
    return claim.claim(state, ask, finishes)
