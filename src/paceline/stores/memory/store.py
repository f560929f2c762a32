"""The memory store: the reference. Every call is one step under one lock; it lives and dies with the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import msgspec

from paceline.clock import Clock, Micros, SystemClock
from paceline.codec import MAX_PAYLOAD
from paceline.errors import ConfigError
from paceline.job import ACTIVE, FINISHED, JobRecord, JobState, Move, NewJob
from paceline.limits import Limit
from paceline.stores.interface import (
    Ask,
    Changed,
    Claim,
    Extended,
    Filter,
    Finish,
    Grant,
    Hold,
    Inserted,
    Lease,
    Note,
    Override,
    Standing,
    StartRecord,
    Target,
    Usage,
    WorkerRecord,
)
from paceline.stores.memory import claim, finish, insert, limits, manage, read
from paceline.stores.memory.listeners import MemoryListener
from paceline.stores.memory.state import Leased, State


class MemoryStore:
    """Jobs and limits in this process: `memory://`. Safe to use from several threads and event loops."""

    never_blocks = True

    def __init__(
        self, *, namespace: str = "default", clock: Clock | None = None, max_payload: int = MAX_PAYLOAD
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.namespace = namespace
        self.max_payload = max_payload
        self.state = State(self.clock)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<MemoryStore {self.namespace!r}>"

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        # What is in memory stays until the process ends: others may use the same store.
        self.state.listeners.close()

    # a job's life

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if within is not None:
            raise ConfigError(
                f"within={within!r} is wrong: the memory store has no transactions to join", option="within"
            )
        with self._lock:
            return insert.insert(self.state, jobs)

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        with self._lock:
            return claim.claim(self.state, ask, finishes)

    async def finish(self, finishes: Sequence[Finish]) -> list[str]:
        with self._lock:
            return finish.finish(self.state, finishes)

    async def extend(self, worker: str, leases: Sequence[Lease], lease: Micros) -> Extended:
        with self._lock:
            state = self.state
            now = state.now()
            known = state.workers.get(worker)
            if known is not None:
                state.workers[worker] = msgspec.structs.replace(known, seen_at=now)
            lost, cancel = [], []
            renewed: Leased = []
            for held in leases:
                row = state.rows.get(held.id)
                holder = row if row is not None else state.permits.get(held.id)
                if holder is None or not holder.active or holder.fence != held.fence:
                    lost.append(held.id)
                    continue
                holder.lease_until = now + lease
                renewed.append((holder, held.fence))
                if row is not None and row.cancel_asked:
                    cancel.append(held.id)
            if renewed:
                state.lease(renewed, now + lease)
            return Extended(lost, cancel)

    async def note(self, notes: Sequence[Note]) -> list[str]:
        with self._lock:
            lost = []
            for note in notes:
                row = self.state.rows.get(note.id)
                if row is None or row.state is not ACTIVE or row.fence != note.fence:
                    lost.append(note.id)
                    continue
                if note.progress is not None:
                    row.progress = note.progress
                    row.message = note.message
                if note.log is not None:
                    row.logs = (*row.logs, note.log)
            return lost

    async def move(self, ids: Sequence[str], move: Move) -> None:
        with self._lock:
            manage.move(self.state, ids, move)

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        with self._lock:
            row = self.state.row(job_id)
            now = self.state.now()
            if row.state in FINISHED:
                return row.record(now)
            future = self.state.listeners.wait_for(job_id)
        try:
            if timeout is None:
                return await future
            done = asyncio.Event()
            future.add_done_callback(lambda _: done.set())
            return future.result() if await self.clock.wait(done, now + timeout) else None
        finally:
            self.state.listeners.stop_waiting(job_id, future)

    # a queue as a whole

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        with self._lock:
            return manage.move_all(self.state, queue, state, move)

    async def drain(self, queue: str) -> int:
        with self._lock:
            return manage.drain(self.state, queue)

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        with self._lock:
            return manage.clean(self.state, queue, state, older_than)

    async def obliterate(self, queue: str, force: bool) -> int:
        with self._lock:
            return manage.obliterate(self.state, queue, force)

    async def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        with self._lock:
            manage.pause(self.state, queue, task, group, paused)

    # limits

    async def set_limits(self, declared: Sequence[Limit]) -> list[Changed]:
        with self._lock:
            return limits.set_limits(self.state, declared)

    async def drop_limit(self, name: str) -> bool:
        with self._lock:
            return limits.drop_limit(self.state, name)

    async def limits(self) -> list[Limit]:
        with self._lock:
            return list(self.state.registry.limits.values())

    async def override(self, override: Override, for_: Micros | None) -> None:
        with self._lock:
            limits.override(self.state, override, for_)

    async def lift(self, limit: str, group: str | None) -> None:
        with self._lock:
            limits.lift(self.state, limit, group)

    async def overrides(self) -> list[Override]:
        with self._lock:
            self.state.now()
            return list(self.state.registry.overrides.values())

    async def hold(self, holds: Sequence[Hold]) -> None:
        with self._lock:
            limits.hold(self.state, holds)

    async def release(self, limit: str, group: str | None) -> None:
        with self._lock:
            limits.release(self.state, limit, group)

    async def usage(self, limit: str, group: str | None) -> Usage:
        with self._lock:
            return limits.usage(self.state, limit, group)

    async def acquire(
        self, targets: Sequence[Target], permit: str, lease: Micros, force: bool = False, waits: bool = False
    ) -> Grant:
        with self._lock:
            return limits.acquire(self.state, targets, permit, lease, force, waits)

    async def give_back(self, permits: Sequence[str]) -> None:
        with self._lock:
            limits.give_back(self.state, permits)

    async def clear(self, limit: str, group: str | None) -> None:
        with self._lock:
            limits.clear(self.state, limit, group)

    # reading

    async def get(self, ids: Sequence[str]) -> list[JobRecord]:
        with self._lock:
            now = self.state.now()
            rows = [self.state.rows.get(job_id) for job_id in ids]
            return [row.record(now) for row in rows if row is not None]

    async def find(self, filter: Filter) -> list[JobRecord]:
        with self._lock:
            return read.find(self.state, filter)

    async def counts(self, queue: str) -> dict[str, int]:
        with self._lock:
            return read.counts(self.state, queue)

    async def starts(self, queue: str, since: Micros | None) -> list[StartRecord]:
        with self._lock:
            return read.starts(self.state, queue, since)

    async def standing(self, job_id: str) -> Standing:
        with self._lock:
            return read.standing(self.state, job_id)

    # workers

    async def register(self, worker: WorkerRecord) -> None:
        with self._lock:
            self.state.workers[worker.id] = msgspec.structs.replace(worker, seen_at=self.state.now())

    async def unregister(self, worker: str) -> None:
        with self._lock:
            self.state.workers.pop(worker, None)
            self.state.last_claims.pop(worker, None)

    async def workers(self) -> list[WorkerRecord]:
        with self._lock:
            return list(self.state.workers.values())

    def listen(self, queues: Sequence[str], worker: str | None = None) -> MemoryListener:
        with self._lock:
            return self.state.listeners.listen(queues, worker)

    async def prune(self) -> int:
        with self._lock:
            return manage.prune(self.state)
