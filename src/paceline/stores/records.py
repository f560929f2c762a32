"""The records that cross the boundary of a store: frozen values in, frozen values out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from paceline.clock import NEVER, Micros
from paceline.job import JobRecord, JobState
from paceline.limits import Kind, Limit
from paceline.stores.failures import Failed

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
    waited: Micros = 0
    """How long the store waited before it stamped the starts, as far as it knows."""
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


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What became of late starts: all others are open, and count in every window until they are said to have begun."""

    refused: list[str]
    """They go back to their places: nothing is charged, no attempt is used."""
    lost: list[str]


class Begun(msgspec.Struct, frozen=True):
    """A handler or a permit that began late, so many microseconds before the store is told so."""

    id: str
    fence: int
    ago: Micros = 0


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
    """True when it holds a slot, or is open: it must be renewed and given back."""
    failed: list[Failed] = []
    """As in `Claim`: dead leases are taken back here, too."""
    guard: Micros = NEVER
    """Whoever begins later than this after `now` asks once more, with `late=now`."""
    waited: Micros = 0
    """As in `Claim`."""


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's word: it wins over what code declares until it is lifted or expires."""

    limit: str
    kind: Kind
    group: str | None = None
    reason: str | None = None
    expires_at: Micros | None = None


class Lag(msgspec.Struct, frozen=True):
    """How long after their starts the handlers of a task begin, and how many began later than a guard allows."""

    p50: Micros
    p99: Micros
    late: int


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the store knows it."""

    id: str
    queues: tuple[str, ...]
    tasks: frozenset[str] | None = None
    seen_at: Micros = 0
    lags: dict[str, Lag] = {}
    """Of each task under a rate, as it was when the worker last said."""


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
