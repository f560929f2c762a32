"""A store whose decisions are steps in Python: every method is one step, wherever it runs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from paceline.clock import Clock, Micros
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Limit
from paceline.stores.interface import (
    Ask,
    Begun,
    Changed,
    Claim,
    Decided,
    Extended,
    Filter,
    Finish,
    Grant,
    Hold,
    Inserted,
    Lease,
    Note,
    Override,
    QueueRecord,
    Standing,
    StartRecord,
    Target,
    Usage,
    WorkerRecord,
)
from paceline.stores.steps import begun, claim, extend, finish, gate, insert, limits, manage, read
from paceline.stores.steps.sleepers import Sleeper, Sleepers

T = TypeVar("T")

LEAST_GUARD: Micros = 5_000
"""Handlers of one claim begin within milliseconds of their starts; a shorter guard would make all of them late."""


class StepStore(ABC):
    """The whole interface but where a step runs: `_change` is for steps that write, `_look` for those that read."""

    clock: Clock
    namespace: str
    max_payload: int
    sleepers: Sleepers

    @property
    def least_guard(self) -> Micros:
        return 0 if self.clock.virtual else LEAST_GUARD

    @abstractmethod
    async def _change(self, step: Callable[..., T], *args: Any) -> T:
        """Do a step that writes."""

    @abstractmethod
    async def _look(self, step: Callable[..., T], *args: Any) -> T:
        """Do a step that only reads."""

    # a job's life

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        return await self._change(insert.insert, jobs)

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        return await self._change(claim.claim, ask, finishes)

    async def finish(self, finishes: Sequence[Finish]) -> list[str]:
        return await self._change(finish.finish, finishes)

    async def decide_again(self, leases: Sequence[Lease]) -> Decided:
        return await self._change(gate.decide_again, leases)

    async def begun(self, said: Sequence[Begun]) -> list[str]:
        return await self._change(begun.begun, said)

    async def extend(self, worker: str, leases: Sequence[Lease], lease: Micros) -> Extended:
        return await self._change(extend.extend, worker, leases, lease)

    async def note(self, notes: Sequence[Note]) -> list[str]:
        return await self._change(extend.note, notes)

    async def move(self, ids: Sequence[str], move: Move) -> None:
        await self._change(manage.move, ids, move)

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        # Waiting begins before the look, so that no end can fall between the two.
        future = self.sleepers.wait_for(job_id)
        try:
            now, record = await self._look(read.outcome, job_id)
            if record is not None:
                return record
            if timeout is None:
                return await future
            done = asyncio.Event()
            future.add_done_callback(lambda _: done.set())
            return future.result() if await self.clock.wait(done, now + timeout) else None
        finally:
            self.sleepers.stop_waiting(job_id, future)

    # a queue as a whole

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        return await self._change(manage.move_all, queue, state, move)

    async def drain(self, queue: str) -> int:
        return await self._change(manage.drain, queue)

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        return await self._change(manage.clean, queue, state, older_than)

    async def obliterate(self, queue: str, force: bool) -> int:
        return await self._change(manage.obliterate, queue, force)

    async def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        await self._change(manage.pause, queue, task, group, paused)

    # limits

    async def set_limits(self, declared: Sequence[Limit], within: object = None) -> list[Changed]:
        return await self._change(limits.set_limits, declared)

    async def drop_limit(self, name: str) -> bool:
        return await self._change(limits.drop_limit, name)

    async def limits(self, within: object = None) -> list[Limit]:
        return await self._look(limits.declared)

    async def override(self, override: Override, for_: Micros | None) -> None:
        await self._change(limits.override, override, for_)

    async def lift(self, limit: str, group: str | None) -> None:
        await self._change(limits.lift, limit, group)

    async def overrides(self) -> list[Override]:
        return await self._look(limits.overrides)

    async def hold(self, holds: Sequence[Hold]) -> None:
        await self._change(limits.hold, holds)

    async def release(self, limit: str, group: str | None) -> None:
        await self._change(limits.release, limit, group)

    async def usage(self, limit: str, group: str | None) -> Usage:
        return await self._look(limits.usage, limit, group)

    async def acquire(
        self,
        targets: Sequence[Target],
        permit: str,
        lease: Micros,
        force: bool = False,
        waits: bool = False,
        late: Micros | None = None,
    ) -> Grant:
        return await self._change(limits.acquire, targets, permit, lease, force, waits, late)

    async def give_back(self, permits: Sequence[str]) -> None:
        await self._change(limits.give_back, permits)

    async def clear(self, limit: str, group: str | None) -> None:
        await self._change(limits.clear, limit, group)

    # reading

    async def get(self, ids: Sequence[str]) -> list[JobRecord]:
        return await self._look(read.get, ids)

    async def find(self, filter: Filter) -> list[JobRecord]:
        return await self._look(read.find, filter)

    async def counts(self, queue: str) -> dict[str, int]:
        return await self._look(read.counts, queue)

    async def queues(self) -> list[QueueRecord]:
        return await self._look(read.queues)

    async def starts(self, queue: str, since: Micros | None) -> list[StartRecord]:
        return await self._look(read.starts, queue, since)

    async def standing(self, job_id: str) -> Standing:
        return await self._look(read.standing, job_id)

    # workers

    async def register(self, worker: WorkerRecord) -> None:
        await self._change(extend.register, worker)

    async def unregister(self, worker: str) -> None:
        await self._change(extend.unregister, worker)

    async def workers(self) -> list[WorkerRecord]:
        return await self._look(extend.workers)

    def listen(self, queues: Sequence[str], worker: str | None = None) -> Sleeper:
        return self.sleepers.listen(queues, worker)

    async def prune(self) -> int:
        return await self._change(manage.prune)
