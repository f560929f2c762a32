"""A job: its states, the moves between them, the record a store keeps and the snapshot a user holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from paceline import codec
from paceline.clock import NEVER, Micros, to_datetime
from paceline.durations import Duration, format_duration, parse_duration
from paceline.errors import JobCancelled, JobFailed, JobNotFound, require
from paceline.text import MAX_LINE, MAX_MESSAGE, clean

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class JobState(StrEnum):
    """Where a job is in its life."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING_CHILDREN = "waiting-children"


WAITING, DELAYED, ACTIVE = JobState.WAITING, JobState.DELAYED, JobState.ACTIVE
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED
FINISHED = frozenset({COMPLETED, FAILED, CANCELLED})
NOT_STARTED = frozenset({WAITING, DELAYED, JobState.WAITING_CHILDREN})


class Move(StrEnum):
    """What a user may ask of a job that is not his to run."""

    CANCEL = "cancel"
    PROMOTE = "promote"
    RETRY = "retry"
    REMOVE = "remove"


MOVES: Mapping[Move, frozenset[JobState]] = {
    Move.CANCEL: NOT_STARTED | {ACTIVE},
    Move.PROMOTE: frozenset({DELAYED}),
    Move.RETRY: FINISHED,
    Move.REMOVE: NOT_STARTED | FINISHED,
}
"""From which states each move is allowed; a running job that is cancelled is told so and ends by itself."""


class Backoff(msgspec.Struct, frozen=True):
    """When to try again: the listed delays, or base · 2^(n−1) up to cap with ± jitter."""

    delays: tuple[Micros, ...] = ()
    base: Micros = 0
    cap: Micros = 0
    jitter: float = 0.0


class JobRecord(msgspec.Struct, frozen=True):
    """Everything a store keeps of one job. `order` is its place in its lane: negative for LIFO."""

    id: str
    queue: str
    task: str
    data: bytes = codec.NULL
    group: str | None = None
    state: JobState = WAITING
    priority: int = 0
    order: int = 0
    attempts: int = 1
    attempts_made: int = 0
    crashes: int = 0
    returns: int = 0
    cost: int | dict[str, int] = 1
    timeout: Micros | None = None
    backoff: Backoff | None = None
    keep: Micros | None = None
    unique: str | None = None
    unique_until: Micros | None = None
    created_at: Micros = 0
    due_at: Micros = 0
    started_at: Micros | None = None
    finished_at: Micros | None = None
    progress: float = 0
    message: str | None = None
    result: bytes | None = None
    error: str | None = None
    logs: tuple[str, ...] = ()
    fence: int = 0
    worker: str | None = None
    cancel_asked: bool = False
    guard: Micros = NEVER
    """Of a job that a claim gives: a handler that begins later than this after its start asks the store first."""


class NewJob(msgspec.Struct, frozen=True):
    """A job as it is handed to a store; instants are relative, because only the store knows the time."""

    id: str
    queue: str
    task: str
    data: bytes = codec.NULL
    group: str | None = None
    group_max_size: int | None = None
    delay: Micros = 0
    due_at: Micros | None = None
    priority: int = 0
    lifo: bool = False
    attempts: int = 1
    backoff: Backoff | None = None
    timeout: Micros | None = None
    cost: int | dict[str, int] = 1
    keep: Micros | None = None
    unique: str | None = None
    unique_ttl: Micros | None = None
    fresh: bool = False
    """True: the id was made for this job, so that no other can have it."""


class Blocked(msgspec.Struct, frozen=True):
    """One limit that refuses a job: how full it is, and until when.

    None: until something finishes, or for good, where the job costs more than the limit ever allows.
    """

    limit: str
    used: int
    allowed: int | None
    until: datetime | None


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is where it is: in a sentence, and as data."""

    text: str
    blocked_by: list[Blocked]
    ahead: int
    earliest_start: datetime | None

    def __str__(self) -> str:
        return self.text


class JobActions(Protocol):
    """What a snapshot needs from the store behind it."""

    async def find(self, job_id: str) -> JobRecord | None: ...
    async def finished(self, job_id: str, timeout: Micros | None) -> JobRecord | None: ...
    async def move(self, job_id: str, move: Move) -> None: ...
    async def note(self, record: JobRecord, progress: float | None, message: str | None, log: str | None) -> None: ...
    async def explain(self, job_id: str) -> Explanation: ...
    def call_sync(self, call: Any) -> Any: ...


class Progress(float):
    """The progress in percent; calling it reports a new one: `await job.progress(50, "half way")`."""

    message: str | None
    _job: Job[Any]

    def __call__(self, percent: float, message: str | None = None) -> Any:
        """A coroutine that writes the progress to the store."""
        return self._job.report_progress(percent, message)


class Job(Generic[R_co]):
    """A snapshot of one job. `await job.refresh()` reads it anew, `await job.result()` waits for its end."""

    __slots__ = ("_actions", "_data", "_record", "_result_type", "_stopped")

    def __init__(self, record: JobRecord, actions: JobActions, result_type: Any = None) -> None:
        self._record = record
        self._actions = actions
        self._result_type = result_type
        self._data: Any = _UNREAD
        self._stopped = False

    def __repr__(self) -> str:
        group = f" group={self.group!r}" if self.group is not None else ""
        return f"<Job {self.id} {self.task!r} {self.state}{group}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other._record == self._record

    def __hash__(self) -> int:
        return hash(self._record.id)

    @property
    def record(self) -> JobRecord:
        """What the store keeps, as it was when the snapshot was taken."""
        return self._record

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def queue(self) -> str:
        return self._record.queue

    @property
    def task(self) -> str:
        return self._record.task

    @property
    def data(self) -> Any:
        """The payload, decoded on first use."""
        if self._data is _UNREAD:
            self._data = codec.decode(self._record.data)
        return self._data

    @property
    def group(self) -> str | None:
        return self._record.group

    @property
    def state(self) -> JobState:
        return self._record.state

    @property
    def priority(self) -> int:
        return self._record.priority

    @property
    def cost(self) -> int | dict[str, int]:
        return self._record.cost

    @property
    def attempts(self) -> int:
        """How many tries it has in total."""
        return self._record.attempts

    @property
    def attempts_made(self) -> int:
        """Tries so far, the running one included; a 429, a hand-back or a crash does not count."""
        return self._record.attempts_made

    @property
    def crashes(self) -> int:
        """How often its worker died while running it."""
        return self._record.crashes

    @property
    def progress(self) -> Progress:
        """The progress in percent; call it inside the handler to report: `await job.progress(50)`."""
        value = Progress(self._record.progress)
        value.message = self._record.message
        value._job = self
        return value

    @property
    def logs(self) -> tuple[str, ...]:
        return self._record.logs

    @property
    def result_value(self) -> Any:
        """What the handler returned, once completed."""
        body = self._record.result
        return None if body is None else codec.convert(codec.decode(body), self._result_type)

    @property
    def error(self) -> str | None:
        """The last error, in words."""
        return self._record.error

    @property
    def created_at(self) -> datetime:
        return to_datetime(self._record.created_at)

    @property
    def due_at(self) -> datetime:
        return to_datetime(self._record.due_at)

    @property
    def started_at(self) -> datetime | None:
        """The start that limits count."""
        at = self._record.started_at
        return None if at is None else to_datetime(at)

    @property
    def finished_at(self) -> datetime | None:
        at = self._record.finished_at
        return None if at is None else to_datetime(at)

    @property
    def cancelled(self) -> bool:
        """True once its handler is to end: for handlers in threads, which must look themselves.

        It was cancelled, ran longer than its timeout, its worker stops (and the grace is over), or its lease is lost.
        """
        return self._stopped or self._record.cancel_asked or self._record.state is CANCELLED

    def mark_stopped(self) -> None:
        """The worker wants this handler to end: `job.cancelled` is true from now on, whatever is read anew."""
        self._stopped = True

    def renew(self, record: JobRecord) -> None:
        """The run goes on under another lease: what it writes from now on is proven by the new fence."""
        self._record = msgspec.structs.replace(record, progress=self._record.progress, message=self._record.message)

    async def refresh(self) -> Job[R_co]:
        """Read the job anew; `JobNotFound` when it is gone."""
        record = await self._actions.find(self.id)
        if record is None:
            raise JobNotFound(self.id)
        self._record = record
        return self

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and give what the handler returned; a timeout does not cancel the job."""
        limit = None if timeout is None else parse_duration(timeout, option="timeout", zero=True)
        record = await self._actions.finished(self.id, limit)
        if record is None:
            raise TimeoutError(f"job {self.id!r} did not finish within {format_duration(limit or 0)}; it goes on")
        self._record = record
        if record.state is FAILED:
            raise JobFailed(self.id, record.error)
        if record.state is CANCELLED:
            raise JobCancelled(self.id)
        return cast(R_co, self.result_value)

    async def report_progress(self, percent: float, message: str | None = None) -> None:
        """Write the progress (0 to 100); `LeaseLost` when the job is no longer this worker's."""
        number = isinstance(percent, int | float) and not isinstance(percent, bool) and 0 <= percent <= 100
        require(number, "percent", percent, "a number from 0 to 100")
        percent = percent if type(percent) is int else float(percent)
        message = None if message is None else clean(message, MAX_MESSAGE)
        await self._actions.note(self._record, percent, message, None)
        self._record = msgspec.structs.replace(self._record, progress=percent, message=message)

    async def log(self, text: str) -> None:
        """Add a line to the job's log, which keeps its last 1,000 lines and 64 KiB."""
        await self._actions.note(self._record, None, None, clean(text, MAX_LINE))

    def progress_sync(self, percent: float, message: str | None = None) -> None:
        """`progress` for plain handlers."""
        self._actions.call_sync(lambda: self.report_progress(percent, message))

    def log_sync(self, text: str) -> None:
        """`log` for plain handlers."""
        self._actions.call_sync(lambda: self.log(text))

    async def cancel(self) -> None:
        """Cancel it: at once while it waits; a running handler is stopped."""
        await self._move(Move.CANCEL)

    async def promote(self) -> None:
        """Make a delayed job due now."""
        await self._move(Move.PROMOTE)

    async def retry(self) -> None:
        """Run a finished job once more, with all its attempts."""
        await self._move(Move.RETRY)

    async def remove(self) -> None:
        """Delete it; a running job cannot be removed."""
        await self._actions.move(self.id, Move.REMOVE)

    async def explain(self) -> Explanation:
        """Why it waits: which limits refuse it, how full they are, who is ahead, the earliest start."""
        return await self._actions.explain(self.id)

    async def _move(self, move: Move) -> None:
        await self._actions.move(self.id, move)
        record = await self._actions.find(self.id)
        if record is not None:
            self._record = record


class _Unread:
    """Marks data that was not decoded yet (None is a payload)."""


_UNREAD = _Unread()
