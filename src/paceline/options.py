"""The options of a job: checked once, here, and turned into the record a store accepts."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias, TypedDict

from paceline import codec
from paceline.checks import check_count, check_flag, check_name, check_optional_name, plain_int
from paceline.clock import Micros, from_datetime
from paceline.durations import Duration, format_duration, parse_duration
from paceline.errors import ConfigError, require
from paceline.forks import in_child
from paceline.job import Backoff, NewJob
from paceline.text import describe, show

DAY = 86_400 * 1_000_000
KEEP = 7 * DAY
"""How long a finished job stays unless said otherwise."""
MAX_LISTED_DELAYS = 100


@dataclass(frozen=True, slots=True)
class Group:
    """A tenant, user or account; `max_size` refuses jobs while it has that many that have not started."""

    id: str
    max_size: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", check_name(self.id, option="group"))
        if self.max_size is not None:
            object.__setattr__(self, "max_size", check_count(self.max_size, option="max_size"))


@dataclass(frozen=True, slots=True)
class Unique:
    """One live job per key, or per task and data when no key is given; `ttl` counts from the first one's creation."""

    key: str | None = None
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", check_optional_name(self.key, option="unique.key"))
        if self.ttl is not None:
            parse_duration(self.ttl, option="unique.ttl")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Exponential:
    """A retry delay that doubles: base · 2^(n−1), at most `cap`, ± `jitter` (a share of it)."""

    base: timedelta
    cap: timedelta
    jitter: float
    record: Backoff = field(compare=False)

    def __init__(self, base: Duration, cap: Duration = "24h", jitter: float = 0.25) -> None:
        first = parse_duration(base, option="base")
        most = parse_duration(cap, option="cap")
        require(most >= first, "cap", cap, f"a duration of at least base ({format_duration(first)})")
        number = isinstance(jitter, int | float) and not isinstance(jitter, bool)
        require(number and 0 <= jitter <= 1, "jitter", jitter, "a share from 0 to 1")
        object.__setattr__(self, "base", timedelta(microseconds=first))
        object.__setattr__(self, "cap", timedelta(microseconds=most))
        object.__setattr__(self, "jitter", jitter)
        object.__setattr__(self, "record", Backoff(base=first, cap=most, jitter=float(jitter)))

    def __repr__(self) -> str:
        base, cap = format_duration(self.record.base), format_duration(self.record.cap)
        return f"Exponential({base!r}, cap={cap!r}, jitter={self.jitter!r})"


RetryDelay: TypeAlias = Duration | Exponential | Callable[[int], Duration]


class JobOptions(TypedDict, total=False):
    """The options of `queue.add` and `task.using`."""

    group: str | Group | None
    delay: Duration | None
    at: datetime | None
    priority: int
    lifo: bool
    attempts: int
    retry_delay: RetryDelay | None
    timeout: Duration | None
    cost: int | dict[str, int]
    job_id: str | None
    unique: Unique | None
    keep: Duration | None


OPTION_NAMES = frozenset(JobOptions.__annotations__)


def new_job(
    queue: str,
    task: str,
    data: Any,
    options: JobOptions,
    *,
    max_payload: int = codec.MAX_PAYLOAD,
    checked: bool = False,
) -> NewJob:
    """Check everything and build the record; nothing was stored when this raises. `checked`: the data has been."""
    body = codec.encode(data, maximum=max_payload, checked=checked)
    fields: dict[str, Any] = {"keep": KEEP} if not options else _fields(task, body, options)
    if "id" not in fields:
        fields["id"], fields["fresh"] = new_id(), True
    return NewJob(queue=queue, task=check_name(task, option="task"), data=body, **fields)


def _fields(task: str, body: bytes, options: JobOptions) -> dict[str, Any]:
    """What options say about a job; only what is given is looked at, for the sake of a bulk."""
    if not options.keys() <= OPTION_NAMES:
        unknown = options.keys() - OPTION_NAMES
        expected = ", ".join(sorted(OPTION_NAMES))
        raise ConfigError(f"unknown job option {sorted(unknown)}; expected some of: {expected}", option=min(unknown))
    fields: dict[str, Any] = {"keep": _keep(options["keep"]) if "keep" in options else KEEP}
    if options.get("job_id") is not None:
        fields["id"] = check_name(options["job_id"], option="job_id")
    group = options.get("group")
    if group is not None:
        if not isinstance(group, Group):
            group = Group(group)
        fields["group"], fields["group_max_size"] = group.id, group.max_size
    unique = options.get("unique")
    if unique is not None:
        require(isinstance(unique, Unique), "unique", unique, "Unique(key=None, ttl=None)")
        fields["unique"] = unique.key or codec.fingerprint(task, body)
        fields["unique_ttl"] = _optional_duration(unique.ttl, option="unique.ttl")
    if "attempts" in options:
        fields["attempts"] = check_count(options["attempts"], option="attempts")
    if "retry_delay" in options:
        fields["backoff"] = check_retry_delay(options["retry_delay"], fields.get("attempts", 1))
    if "delay" in options or "at" in options:
        fields["delay"], fields["due_at"] = _due(options.get("delay"), options.get("at"))
    for name, check in _CHECKS.items():
        if name in options:
            fields[name] = check(options[name])  # type: ignore[literal-required]  # one of JobOptions
    return fields


def check_retry_delay(value: RetryDelay | None, attempts: int) -> Backoff | None:
    """A retry delay as data; a function is asked now for each attempt, so that every worker knows the answers."""
    if value is None:
        return None
    if isinstance(value, Exponential):
        return value.record
    if callable(value):
        numbers = range(1, min(attempts, MAX_LISTED_DELAYS + 1)) or range(1, 2)
        return Backoff(delays=tuple(_delay_before(value, n) for n in numbers))
    return Backoff(delays=(parse_duration(value, option="retry_delay", zero=True),))


def _delay_before(function: Callable[[int], Duration], attempt: int) -> Micros:
    try:
        delay = function(attempt)
    except Exception as error:  # also one that takes no number, or more than one
        expected = "a function that takes the number of the failed attempt and gives a duration"
        why = f"retry_delay={show(function)} is wrong: expected {expected}; for {attempt} it raised {describe(error)}"
        raise ConfigError(why, option="retry_delay", value=function) from error
    return parse_duration(delay, option=f"retry_delay({attempt})", zero=True)


_last_id = 0
_ID_TAIL = int.from_bytes(os.urandom(8), "big")


def new_id() -> str:
    """A UUID version 7: sorted by time, unique over processes, monotonic within one."""
    global _last_id, _ID_TAIL
    # Milliseconds and 12 bits of a counter; the counter may run ahead of the clock but never back.
    stamp = time.time_ns() // 1_000_000 << 12
    _last_id = stamp if stamp > _last_id else _last_id + 1
    _ID_TAIL = (_ID_TAIL * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
    head = f"{_last_id:015x}"
    tail = f"{_ID_TAIL & 0x3FFFFFFFFFFFFFFF | 0x8000000000000000:016x}"
    return f"{head[:8]}-{head[8:12]}-7{head[12:]}-{tail[:4]}-{tail[4:]}"


@in_child
def _reseed() -> None:
    """A forked child must not repeat its parent's ids."""
    global _ID_TAIL, _process
    _ID_TAIL = int.from_bytes(os.urandom(8), "big")
    _process = new_id()


_process = new_id()
_numbers = itertools.count()


def new_permit_id() -> str:
    """Permits are named by the process and a number: unique over processes, and cheap to make."""
    return f"permit:{_process}:{next(_numbers)}"


def _due(delay: Duration | None, at: datetime | None) -> tuple[Micros, Micros | None]:
    require(delay is None or at is None, "at", at, "either delay or at, not both")
    if at is not None:
        return 0, from_datetime(at, option="at")
    return (0 if delay is None else parse_duration(delay, option="delay", zero=True)), None


def _keep(value: Duration | None) -> Micros | None:
    return None if value is None else parse_duration(value, option="keep", zero=True)


def _optional_duration(value: Duration | None, *, option: str) -> Micros | None:
    return None if value is None else parse_duration(value, option=option)


def _check_priority(value: object) -> int:
    number = plain_int(value)
    valid = number is not None and abs(number) <= 2**31 - 1
    require(valid, "priority", value, "a whole number (lower goes first)")
    return number  # type: ignore[return-value]  # checked in the line above


def _check_cost(cost: Any) -> int | dict[str, int]:
    if isinstance(cost, Mapping):
        return {check_name(name, option="cost"): check_count(n, option=f"cost[{name!r}]") for name, n in cost.items()}
    return check_count(cost, option="cost")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "priority": _check_priority,
    "lifo": partial(check_flag, option="lifo"),
    "timeout": partial(_optional_duration, option="timeout"),
    "cost": _check_cost,
}
"""Options that stand for themselves."""
