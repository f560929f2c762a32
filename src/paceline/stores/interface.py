"""What a store is: the records that cross the boundary and the one protocol all four stores implement.

Every method takes many and is one atomic step. Time is the store's own; callers send durations, never stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from paceline.clock import NEVER, Clock, Micros
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Kind, Limit
from paceline.limits.explain import Standing as Standing
from paceline.limits.explain import Usage as Usage
from paceline.stores.failures import Failed as Failed
from paceline.stores.overview import About as About
from paceline.stores.overview import QueueRecord as QueueRecord

MAX_CRASHES = 3
"""A job that killed its worker this often fails with reason "crashed"."""


class Outcome(StrEnum):
    """How one run of a job ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRY = "retry"  # another attempt, after a while
    RETURNED = "returned"  # refused from outside: back to its place, no attempt used
    RELEASED = "released"  # handed back by a worker that stops: likewise
    CRASHED = "crashed"  # the process that ran it died: likewise, but crashes are counted


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody starts under this key for a while; without a time the limit's backoff decides, with `jitter` in [0, 1)."""

    limit: str
    group: str | None = None
    until: Micros | None = None
    for_: Micros | None = None
    jitter: float = 0.0
    reason: str | None = None
    create: Limit | None = None
    """Declared first when no limit has this name: stands for one task in one queue."""


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one run. `fence` proves the lease; a stale one changes nothing."""

    id: str
    fence: int
    outcome: Outcome
    result: bytes | None = None
    error: str | None = None
    after: Micros = 0
    at: Micros | None = None
    when_open: bool = False
    """RETRY without a time: due at the latest next start of the job's limits."""
    holds: tuple[Hold, ...] = ()


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for: as many jobs as it has free slots."""

    queues: tuple[str, ...]
    slots: int
    worker: str
    lease: Micros
    claim_id: str = ""
    tasks: frozenset[str] | None = None
    """The tasks it can run; None: all."""
    also: tuple[str, ...] = ()
    """Limits that every start of this claim meets besides its own: a worker's shared limiter."""
    room: int | None = None
    """The summed cost that the worker's private limiter admits now."""
    most: int | None = None
    """The largest cost that limiter ever admits: bigger jobs are left to other workers."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that were started, and when to ask again if none comes before (equal to `now`: at once)."""

    jobs: list[JobRecord]
    now: Micros
    ask_again_at: Micros
    lost: list[str] = []
    """Finishes sent along that were refused: their leases are lost."""
    guard: Micros = NEVER
    """The smallest guard of any limit: a handler that begins later than this after its start is reported."""
    needs_room: int = 0
    """The next job costs this much, more than `Ask.room`."""
    failed: list[Failed] = []
    """Jobs that this very step failed, each in one answer only."""


class Inserted(msgspec.Struct, frozen=True):
    """The stored job; `existed` when the id or the unique key was taken and nothing was added."""

    job: JobRecord
    existed: bool


class Lease(msgspec.Struct, frozen=True):
    """The right to run one job."""

    id: str
    fence: int


class Extended(msgspec.Struct, frozen=True):
    """What a heartbeat learns: leases that are lost, and jobs that somebody wants cancelled."""

    lost: list[str]
    cancel: list[str]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Progress or a log line from the run that holds the fence."""

    id: str
    fence: int
    progress: float | None = None
    message: str | None = None
    log: str | None = None


class StartRecord(msgspec.Struct, frozen=True):
    """One entry of the log of starts, as the store stamped it."""

    job_id: str
    at: Micros
    task: str
    group: str | None
    cost: int | dict[str, int]


class Target(msgspec.Struct, frozen=True):
    """One key that a permit is asked from."""

    limit: str
    group: str | None = None
    cost: int = 1


class Grant(msgspec.Struct, frozen=True):
    """The answer to `acquire`: granted at `now`, or refused until `until`."""

    granted: bool
    now: Micros
    until: Micros = 0
    leased: bool = False
    """True when it holds a slot: it must be renewed and given back."""
    failed: list[Failed] = []
    """As in `Claim`: dead leases are taken back here, too."""


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's word: it wins over what code declares until it is lifted or expires."""

    limit: str
    kind: Kind
    group: str | None = None
    reason: str | None = None
    expires_at: Micros | None = None


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the store knows it."""

    id: str
    queues: tuple[str, ...]
    tasks: frozenset[str] | None = None
    seen_at: Micros = 0


class Changed(msgspec.Struct, frozen=True):
    """A declaration that replaced other numbers."""

    old: Limit
    new: Limit


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list, in the order they were added or backwards; `after` is the last one of the page before."""

    queue: str
    state: JobState | None = None
    task: str | None = None
    group: str | None = None
    limit: int = 100
    after: str | None = None
    newest_first: bool = False


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
        self, targets: Sequence[Target], permit: str, lease: Micros, force: bool = False, waits: bool = False
    ) -> Grant:
        """Start something that is no job: charge all keys or none (`force`: charge anyway).

        `waits`: the same permit is asked for again later; if only its size is in the way, the room is kept for it.
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
