"""What a store is: the one protocol that all four stores implement.

Every method takes many and is one atomic step. Time is the store's own; callers send durations, never stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from paceline.clock import Clock, Micros
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Limit
from paceline.limits.explain import Standing as Standing
from paceline.limits.explain import Usage as Usage
from paceline.stores.failures import Failed as Failed
from paceline.stores.overview import About as About
from paceline.stores.overview import QueueRecord as QueueRecord
from paceline.stores.records import MAX_CRASHES as MAX_CRASHES
from paceline.stores.records import Ask as Ask
from paceline.stores.records import Begun as Begun
from paceline.stores.records import Changed as Changed
from paceline.stores.records import Claim as Claim
from paceline.stores.records import Decided as Decided
from paceline.stores.records import Extended as Extended
from paceline.stores.records import Filter as Filter
from paceline.stores.records import Finish as Finish
from paceline.stores.records import Grant as Grant
from paceline.stores.records import Hold as Hold
from paceline.stores.records import Inserted as Inserted
from paceline.stores.records import Lag as Lag
from paceline.stores.records import Lease as Lease
from paceline.stores.records import Note as Note
from paceline.stores.records import Outcome as Outcome
from paceline.stores.records import Override as Override
from paceline.stores.records import StartRecord as StartRecord
from paceline.stores.records import Target as Target
from paceline.stores.records import WorkerRecord as WorkerRecord


class Listener(Protocol):
    """A sleeper's ear: `event` is set when there may be something to do. A hint, never a promise."""

    event: asyncio.Event
    heartbeat_due: bool
    """Set together with the event when one of the worker's own leases needs a look (a cancel was asked)."""
    wants_empty: bool
    """Set by a listener that also wants to hear when the last unfinished job of a queue ends."""

    def close(self) -> None: ...


class Store(Protocol):
    """Where jobs and limits live."""

    clock: Clock
    namespace: str
    address: str
    """Where it lives, as it may be shown: without a password."""
    max_payload: int
    never_blocks: bool
    """True when no call ever waits for anything outside the process."""

    @property
    def least_guard(self) -> Micros:
        """The shortest guard that is chosen for a rate without one; 0 on a clock that a test moves."""
        ...

    async def open(self, within: object = None) -> None:
        """Connect, create or check the schema; safe to call twice and by many.

        `within`: the caller's transaction, where a store would otherwise wait for it.
        """

    async def close(self) -> None:
        """Let go of everything; waiting calls end with an error."""

    async def about(self) -> About:
        """The server, its settings, and what is wrong with them."""
        ...

    # a job's life

    async def insert(self, jobs: Sequence[NewJob], within: object = None) -> list[Inserted]:
        """All or none: ids, unique keys, group sizes and costs are checked in the same step."""
        ...

    async def claim(self, ask: Ask, finishes: Sequence[Finish] = ()) -> Claim:
        """The one place where limits bite: finish what is sent along, then start as many as all limits allow."""
        ...

    async def finish(self, finishes: Sequence[Finish]) -> list[str]:
        """End runs whose fence is still current; returns the ids of the others."""
        ...

    async def decide_again(self, leases: Sequence[Lease]) -> Decided:
        """Jobs whose handlers would begin later than their guard allows: decide as if they were claimed now.

        Only windows and holds are asked again; an answer that was lost can be asked for again.
        """
        ...

    async def begun(self, begun: Sequence[Begun]) -> list[str]:
        """Handlers and permits began late: their starts count from there. Returns the ids whose lease is lost."""
        ...

    async def extend(self, worker: str, leases: Sequence[Lease], lease: Micros) -> Extended:
        """Prolong leases (jobs and permits) and say that the worker lives."""
        ...

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Write progress and log lines; returns the ids whose lease is lost."""
        ...

    async def move(self, ids: Sequence[str], move: Move) -> None:
        """Cancel, promote, retry, remove: all or none; `JobNotFound`, `MoveNotAllowed`."""
        ...

    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None:
        """The job once it is in a final state; None when the time is over first. `JobNotFound`."""
        ...

    # a queue as a whole

    async def move_all(self, queue: str, state: JobState, move: Move) -> int:
        """The same move for every job of a queue in one state."""
        ...

    async def drain(self, queue: str) -> int:
        """Remove what has not started."""
        ...

    async def clean(self, queue: str, state: JobState, older_than: Micros) -> int:
        """Remove jobs of one state that got there longer ago than this."""
        ...

    async def obliterate(self, queue: str, force: bool) -> int:
        """Remove the queue with its pauses, turns and the counters of its own limits; refuses with active jobs."""
        ...

    async def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        """Start nothing of the queue, the task or the group until resumed."""
        ...

    # limits

    async def set_limits(self, limits: Sequence[Limit], within: object = None) -> list[Changed]:
        """Declare: new ones are added, other numbers replace, another scope is a `ConfigError`.

        `within`: the caller's transaction, where a store would otherwise wait for it.
        """
        ...

    async def drop_limit(self, name: str) -> bool:
        """Forget a limit and its overrides."""
        ...

    async def limits(self, within: object = None) -> list[Limit]:
        """All declared limits; `within` as for `set_limits`."""
        ...

    async def override(self, override: Override, for_: Micros | None) -> None:
        """Set an operator's numbers, for a while or until lifted."""
        ...

    async def lift(self, limit: str, group: str | None) -> None:
        """Go back to what code declares."""
        ...

    async def overrides(self) -> list[Override]:
        """The operator's numbers that hold now."""
        ...

    async def hold(self, holds: Sequence[Hold]) -> None:
        """Let nobody start under these keys; a hold only grows."""
        ...

    async def release(self, limit: str, group: str | None) -> None:
        """Lift the hold of one key; of all keys of the limit when no group is given."""
        ...

    async def usage(self, limit: str, group: str | None) -> Usage:
        """How full one key is. `ConfigError` when the limit is not declared."""
        ...

    async def acquire(
        self,
        targets: Sequence[Target],
        permit: str,
        lease: Micros,
        force: bool = False,
        waits: bool = False,
        late: Micros | None = None,
    ) -> Grant:
        """Start something that is no job: charge all keys or none (`force`: charge anyway).

        `waits`: the same permit is asked for again later; if only its size is in the way, the room is kept for it.
        `late`: it was granted at that instant and came too late: decide again; if granted, it is open until `begun`.
        """
        ...

    async def give_back(self, permits: Sequence[str]) -> None:
        """End permits, and the waits for them; unknown ones are ignored."""
        ...

    async def clear(self, limit: str, group: str | None) -> None:
        """Forget the starts and the hold of a key; live leases stay."""
        ...

    # reading

    async def get(self, ids: Sequence[str]) -> list[JobRecord]:
        """The jobs that exist, in the order asked."""
        ...

    async def find(self, filter: Filter) -> list[JobRecord]:
        """A page of jobs in the order they were added."""
        ...

    async def counts(self, queue: str) -> dict[str, int]:
        """How many jobs are in each of the seven states."""
        ...

    async def queues(self) -> list[QueueRecord]:
        """Every queue that has jobs or a pause, by name."""
        ...

    async def starts(self, queue: str, since: Micros | None) -> list[StartRecord]:
        """The log of starts, kept at least for the longest window."""
        ...

    async def standing(self, job_id: str) -> Standing:
        """Everything that decides when a job may start. `JobNotFound`."""
        ...

    # workers

    async def register(self, worker: WorkerRecord) -> None:
        """Say which queues and tasks a worker serves."""
        ...

    async def unregister(self, worker: str) -> None:
        """The worker stops."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """Who serves which queues."""
        ...

    def listen(self, queues: Sequence[str], worker: str | None = None) -> Listener:
        """An ear for arrivals and changes in these queues, in the running event loop."""
        ...

    async def prune(self) -> int:
        """Remove finished jobs after their `keep`, and what idle limits and groups left; returns how many jobs."""
        ...
