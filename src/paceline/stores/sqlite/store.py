"""The SQLite store: `sqlite:///jobs.db`. Durable, no server, any number of processes on one machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from paceline.clock import Clock, Micros
from paceline.codec import MAX_PAYLOAD
from paceline.errors import ConfigError
from paceline.forks import reset_when_forked
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Limit
from paceline.stores.interface import About, Ask, Changed, Claim, Finish, Inserted, StartRecord, WorkerRecord
from paceline.stores.sqlite import bulk
from paceline.stores.sqlite.about import about
from paceline.stores.sqlite.clock import BootClock
from paceline.stores.sqlite.connect import DURABILITY, path_of
from paceline.stores.sqlite.listening import Listening
from paceline.stores.sqlite.reading import READS, all_starts
from paceline.stores.sqlite.unit import Unit
from paceline.stores.sqlite.within import do_within
from paceline.stores.sqlite.writer import Writer
from paceline.stores.steps import begun, claim, extend, finish, gate, insert, limits
from paceline.stores.steps.sleepers import Sleeper, Sleepers
from paceline.stores.steps.store import StepStore

log = logging.getLogger("paceline.store")
T = TypeVar("T")

QUICK = frozenset(
    {
        claim.claim,
        finish.finish,
        gate.decide_again,
        begun.begun,
        extend.extend,
        extend.note,
        limits.acquire,
        limits.give_back,
    }
)
"""Steps of a run, bounded by the slots of a worker: over in a moment."""
FEW = 100
"""So many jobs are added in a moment."""


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
        self.path = path_of(url)
        if durability not in DURABILITY:
            raise ConfigError(
                f'durability={durability!r} is wrong: expected "full" or "normal"',
                option="durability",
                value=durability,
            )
        self.address = url
        self.clock = clock or BootClock()
        self.namespace = namespace
        self.max_payload = max_payload
        self.never_blocks = self.clock.virtual
        self.sleepers = Sleepers()
        self._unit, reader = (Unit(self.clock, namespace, self.sleepers, self.least_guard) for _ in range(2))
        reader.beside = self._unit
        self._declared: dict[str, Limit] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._writer = Writer(self.path, durability, self.clock, self._unit, reader, self._written)
        self._listening = Listening(self.path, self._unit, self._writer, self.sleepers)
        reset_when_forked(self)

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r} {self.namespace!r}>"

    @property
    def missed_notifications(self) -> int:
        """How often something happened without a notification: the poll found it."""
        return self._listening.missed

    @property
    def is_connected(self) -> bool:
        """True when the file is open, and has our tables and our namespace."""
        return self._writer.is_connected

    async def open(self, within: object = None) -> None:
        # The caller's transaction may hold the file: what is missing there is made in it, by the step that needs it.
        if within is None:
            await self._read(_nothing)

    async def about(self) -> About:
        return await self._read(about)

    async def close(self) -> None:
        await self._listening.close()
        await self._writer.close()
        self.sleepers.close()

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        if within is not None:
            return do_within(self, within, insert.insert, jobs)
        return await super().insert(jobs)

    async def set_limits(self, declared: Sequence[Limit], within: object = None) -> list[Changed]:
        if within is not None:
            return do_within(self, within, limits.set_limits, declared)
        # Most programs declare what is declared already: no reason to wait for those who write.
        changed = []
        if not await self._look(limits.are_declared, declared):
            changed = await super().set_limits(declared)
        for limit in declared:
            if not limit.detached or limit.name not in self._declared:
                self._declared[limit.name] = limit
        return changed

    async def limits(self, within: object = None) -> list[Limit]:
        if within is not None:
            return do_within(self, within, limits.declared)
        return await super().limits()

    async def drop_limit(self, name: str) -> bool:
        self._declared.pop(name, None)
        return await super().drop_limit(name)

    async def register(self, worker: WorkerRecord) -> None:
        await super().register(worker)
        self._workers[worker.id] = worker

    async def unregister(self, worker: str) -> None:
        self._workers.pop(worker, None)
        await super().unregister(worker)

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        return await bulk.move_all(self, queue, state, move)

    async def drain(self, queue: str) -> int:
        return await bulk.drain(self, queue)

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        return await bulk.clean(self, queue, state, older_than)

    async def obliterate(self, queue: str, force: bool) -> int:
        return await bulk.obliterate(self, queue, force)

    async def prune(self) -> int:
        return await bulk.prune(self)

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        asked_at = self.clock.now()
        claimed = await self._change(claim.claim, ask, finishes)
        # The file's clock is the machine's: what came before the stamp is known.
        return msgspec.structs.replace(claimed, waited=max(claimed.now - asked_at, 0)) if claimed.jobs else claimed

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        self._listening.open(waits=True)
        return await super().finished(job_id, timeout)

    def listen(self, queues: Sequence[str], worker: str | None = None) -> Sleeper:
        self._listening.open()
        return super().listen(queues, worker)

    async def _change(self, step: Callable[..., T], *args: Any) -> T:
        quick = step in QUICK or (step is insert.insert and len(args[0]) <= FEW)
        return await self._writer.run(self._declared_first, _run, step, *args, writes=True, quick=quick)

    async def _look(self, step: Callable[..., T], *args: Any) -> T:
        reads = READS.get(step)
        return await (self._read(_run, step, *args) if reads is None else self._read(reads, *args))

    async def _write(self, call: Callable[..., T], *args: Any) -> T:
        """Do something that writes, in a transaction."""
        return await self._writer.run(self._declared_first, call, *args, writes=True)

    async def _read(self, call: Callable[..., T], *args: Any) -> T:
        """Do something that only reads, in a transaction."""
        return await self._writer.run(call, *args, writes=False)

    def _declared_first(self, unit: Unit, call: Callable[..., T], *args: Any) -> T:
        """A file that took the place of ours first gets the limits and workers of this program."""
        if unit.replaced:
            known = unit.state.registry.limits
            missing = [limit for name, limit in list(self._declared.items()) if name not in known]
            if missing:
                log.warning("%s was replaced by another file: the limits of this program are declared again", self.path)
                unit.run(limits.set_limits, missing)
            for worker in list(self._workers.values()):
                unit.run(extend.register, worker)
            unit.declared_again = True
        return call(unit, *args)

    def _written(self) -> None:
        """A transaction is written: notify everybody of what it was about."""
        notifications = self._unit.notifications
        if notifications.any():
            self._listening.notify(notifications, self._unit.notified)
            notifications.deliver()
            notifications.clear()

    def before_fork(self) -> None:
        self._listening.before_fork()
        self._writer.before_fork()

    def after_fork(self) -> None:
        self._writer.after_fork()
        self._listening.after_fork()

    def forked(self) -> None:
        """A child opens the file for itself, with a thread, a socket and locks of its own."""
        self.sleepers.forked()
        self._writer.forked()
        self._listening.forked()
        self._workers = {}

    def all_starts(self) -> list[StartRecord]:
        """The log of starts of every queue, for tests that move the clock."""
        return self._writer.now(all_starts)


def _nothing(unit: Unit) -> None:
    """Connecting is all that is wanted."""


def _run(unit: Unit, step: Callable[..., T], *args: Any) -> T:
    return unit.run(step, *args)
