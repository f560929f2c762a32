"""Every error Paceline raises.

PacelineError
├── ConfigError            an option is wrong; names the option, the value and what is expected
├── EnqueueError           a job was not accepted; nothing was stored
│   ├── GroupFull          the group has its maximum of jobs that have not started
│   ├── NeverFits          the cost is above a limit's maximum: the job could never start
│   ├── PayloadTooLarge    the encoded data is larger than the store accepts
│   ├── NotSerializable    the data cannot be written as JSON
│   ├── WrongArguments     the call does not fit the task's parameters and their annotations; also a TypeError
│   └── QueueClosed        the queue (or its app) was closed
├── JobNotFound            no job has this id
├── MoveNotAllowed         the job's state does not allow this, e.g. promoting a finished job
├── JobFailed              `job.result()`: the job failed for good
├── JobCancelled           `job.result()`: the job was cancelled
├── LeaseLost              another worker has the job now; nothing was changed
├── StoreError             the store failed; the driver's error is the cause
│   ├── StoreUnavailable   it cannot be reached; trying again may help
│   └── SchemaMismatch     its schema is older, newer or not ours
└── MissingExtra           an optional package is not installed; the text has the install command
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.text import show


class PacelineError(Exception):
    """Base of everything Paceline raises."""


class ConfigError(PacelineError):
    """An option is wrong: the text names the option, the value and what is expected."""

    def __init__(self, message: str, *, option: str | None = None, value: Any = None) -> None:
        super().__init__(message)
        self.option = option
        self.value = value


class EnqueueError(PacelineError):
    """A job was not accepted; nothing was stored."""


class GroupFull(EnqueueError):
    """The group already has `max_size` jobs that have not started."""

    def __init__(self, group: str, size: int, max_size: int) -> None:
        super().__init__(
            f"group {group!r} has {size} jobs that have not started and its maximum size is {max_size}; "
            "add again when some have started, or raise max_size"
        )
        self.group = group
        self.size = size
        self.max_size = max_size

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.group, self.size, self.max_size)


class NeverFits(EnqueueError):
    """The job costs more than one of its limits ever allows."""

    def __init__(self, limit: str, cost: int, allowed: int) -> None:
        super().__init__(
            f"the job costs {cost}, but limit {limit!r} never allows more than {allowed}; "
            "lower the cost or raise the limit"
        )
        self.limit = limit
        self.cost = cost
        self.allowed = allowed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit, self.cost, self.allowed)


class PayloadTooLarge(EnqueueError):
    """The encoded data is larger than the configured maximum."""

    def __init__(self, size: int, maximum: int, what: str = "data") -> None:
        verb = "return" if what == "result" else "pass"
        super().__init__(
            f"the job's {what} is {size} bytes as JSON and the maximum is {maximum}; "
            f"store it elsewhere and {verb} a reference, or raise the maximum: with "
            f"?max_payload={2 * size} in the URL of the store, or open_store(url, max_payload={2 * size})"
        )
        self.size = size
        self.maximum = maximum
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.size, self.maximum, self.what)


class NotSerializable(EnqueueError):
    """The data cannot be written as JSON."""


class WrongArguments(EnqueueError, TypeError):
    """The call does not fit the task's function: its parameters, or the types they are annotated with."""


class QueueClosed(EnqueueError):
    """The queue was closed; open a new one to add jobs."""


class JobNotFound(PacelineError):
    """No job has this id (it may have been removed after its `keep` time)."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}; it never existed or was removed after its keep time")
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id,)


class MoveNotAllowed(PacelineError):
    """The job's state does not allow what was asked, or another live job has its unique key (`holder`)."""

    def __init__(self, job_id: str, state: str, wanted: str, holder: str | None = None) -> None:
        text = f"job {job_id!r} is {state}: it cannot be moved by {str(wanted)!r} from there"
        if holder is not None:
            text = (
                f"job {job_id!r} cannot be retried: job {holder!r} has its unique key; cancel that one, or let it end"
            )
        super().__init__(text)
        self.job_id = job_id
        self.state = state
        self.wanted = wanted
        self.holder = holder

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, self.state, self.wanted, self.holder)


class JobFailed(PacelineError):
    """The job failed for good; `error` says why."""

    def __init__(self, job_id: str, error: str | None) -> None:
        super().__init__(f"job {job_id!r} failed: {error}")
        self.job_id = job_id
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, self.error)


class JobCancelled(PacelineError):
    """The job was cancelled."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} was cancelled")
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id,)


class LeaseLost(PacelineError):
    """Another worker has the job now, or it ended: what this one wanted to write was refused."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"the lease of job {job_id!r} is lost: it was taken back, finished or removed; nothing was changed"
        )
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id,)


class StoreError(PacelineError):
    """The store failed; the driver's own error is the cause."""


class StoreUnavailable(StoreError):
    """The store cannot be reached; trying again may help."""


class SchemaMismatch(StoreError):
    """The store's schema is older or newer than this version, or not Paceline's."""


class MissingExtra(PacelineError):
    """An optional package is not installed; the text has the install command."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs the extra {extra!r}; install it with: pip install 'paceline[{extra}]'")
        self.extra = extra
        self.needed_for = needed_for

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.extra, self.needed_for)


def refuse_unknown(unknown: Mapping[str, object], where: str, expected: str) -> None:
    """Raise `ConfigError` when options were given that nobody knows, misspelt ones as a rule."""
    for option, value in unknown.items():
        raise ConfigError(f"{where} has no option {option!r}; expected {expected}", option=option, value=value)


def require(condition: bool, option: str, value: Any, expected: str) -> None:
    """Raise `ConfigError` unless the condition holds: every validation speaks with this one sentence."""
    if not condition:
        raise ConfigError(f"{option}={show(value)} is wrong: expected {expected}", option=option, value=value)
