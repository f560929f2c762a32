"""Step 4: how a run ended becomes what the store writes. Pure: limits and jitter come from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from paceline import codec
from paceline.clock import Micros
from paceline.durations import format_duration
from paceline.errors import ConfigError, EnqueueError
from paceline.job import JobRecord
from paceline.lifecycle.backoff import delay_before_attempt
from paceline.limits import Limit
from paceline.limits.rule import limits_to_hold, task_limit
from paceline.stores.interface import Finish, Hold, Outcome
from paceline.text import MAX_ERROR, clean, describe, is_a
from paceline.verdicts import Fail, RateLimited, Retry

MAX_RETURNS = 100
"""How often one job may come back from a 429 before it fails."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Unstorable:
    """The handler returned something that cannot be stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised; verdicts included."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """It ran longer than its timeout and was stopped."""

    after: Micros


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody cancelled the job."""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The worker stops, or lost the right to run it."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran it died."""

    reason: str


NoSuccess: TypeAlias = Unstorable | Raised | TimedOut | Cancelled | HandedBack | Crashed
RunEnd: TypeAlias = Succeeded | NoSuccess


def decide(
    job: JobRecord,
    end: RunEnd,
    *,
    jitter: float,
    limits: Sequence[Limit] = (),
    max_returns: int = MAX_RETURNS,
    max_result: int = codec.MAX_PAYLOAD,
    pack: Callable[[Any], Any] | None = None,
) -> Finish:
    """What becomes of the job. Whatever objects a handler raised or returned, this gives an answer."""
    try:
        if isinstance(end, Succeeded):
            return _completed(job, end.value, max_result, pack)
        return _decide(job, end, jitter, limits, max_returns)
    except BaseException as problem:
        # A verdict that its own class never set up, a value whose code raises: the user's, and never the worker's end.
        return _attempt_failed(job, f"the end of the run cannot be understood: {describe(problem)}", jitter)


def _decide(job: JobRecord, end: NoSuccess, jitter: float, limits: Sequence[Limit], max_returns: int) -> Finish:
    match end:
        case Unstorable(reason):
            return _unstorable(job, reason)
        case Raised(error) if is_a(error, RateLimited):
            return _returned(job, error, limits, jitter, max_returns)
        case Raised(error) if is_a(error, Retry):
            return _retry(job, error)
        case Raised(error) if is_a(error, Fail):
            return _finish(job, Outcome.FAILED, error=error.reason or "Fail: without a reason")
        case Raised(error):
            return _attempt_failed(job, describe(error), jitter)
        case TimedOut(after):
            return _attempt_failed(job, f"TimeoutError: timed out after {format_duration(after)}", jitter)
        case Cancelled():
            return _finish(job, Outcome.CANCELLED)
        case HandedBack():
            return _finish(job, Outcome.RELEASED)
        case Crashed(reason):
            return _finish(job, Outcome.CRASHED, error=reason)


def _finish(job: JobRecord, outcome: Outcome, *, error: object = None, **more: Any) -> Finish:
    text = None if error is None else clean(error, MAX_ERROR)
    return Finish(id=job.id, fence=job.fence, outcome=outcome, error=text, **more)


def _completed(job: JobRecord, value: Any, max_result: int, pack: Callable[[Any], Any] | None) -> Finish:
    if value is None:
        return Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED)
    try:
        result = codec.encode(value if pack is None else pack(value), maximum=max_result, what="result")
    except Exception as error:  # also what a value of the user's own class raises when it is compared
        return _unstorable(job, describe_unstorable(error))
    return _finish(job, Outcome.COMPLETED, result=result)


def describe_unstorable(error: Exception) -> str:
    """Why a result cannot be stored, as `Unstorable` carries it."""
    return f"{type(error).__name__}: {error}" if isinstance(error, EnqueueError) else describe(error)


def _unstorable(job: JobRecord, reason: str) -> Finish:
    """Never run again: what the handler did is done, and its result would be no better next time."""
    done = "the handler succeeded and is not called again, only its result is lost: return None, or what JSON has"
    return _finish(job, Outcome.FAILED, error=f"{reason} ({done})")


def _attempt_failed(job: JobRecord, error: str, jitter: float) -> Finish:
    if job.attempts_made >= job.attempts:
        return _finish(job, Outcome.FAILED, error=error)
    after = delay_before_attempt(job.backoff, job.attempts_made, jitter)
    return _finish(job, Outcome.RETRY, error=error, after=after)


def _retry(job: JobRecord, verdict: Retry) -> Finish:
    error = verdict.reason or "Retry: asked by the handler"
    if job.attempts_made >= job.attempts:
        return _finish(job, Outcome.FAILED, error=f"{error} (no attempt left of {job.attempts})")
    when_open = verdict.after is None and verdict.at is None
    return _finish(job, Outcome.RETRY, error=error, after=verdict.after or 0, at=verdict.at, when_open=when_open)


def _returned(job: JobRecord, verdict: RateLimited, limits: Sequence[Limit], jitter: float, max_returns: int) -> Finish:
    """The service refused: hold the limits it stands behind, and put the job back to its place."""
    try:
        holds = _holds(job, verdict, limits, jitter)
    except ConfigError as unknown:
        return _attempt_failed(job, describe(unknown), jitter)
    if job.returns >= max_returns:
        error = f"RateLimited: refused by the service {job.returns + 1} times (max_returns={max_returns})"
        return _finish(job, Outcome.FAILED, error=error, holds=holds)
    return _finish(job, Outcome.RETURNED, error="RateLimited: refused by the service", holds=holds)


def _holds(job: JobRecord, verdict: RateLimited, limits: Sequence[Limit], jitter: float) -> tuple[Hold, ...]:
    create = None
    targets = limits_to_hold(limits, job.queue, job.task, verdict.limit)
    known_name = bool(targets)
    # A job without a group has no counter under a per-group limit.
    targets = [limit for limit in targets if limit.by is None or job.group is not None]
    if not targets:
        if verdict.limit is not None and not known_name:
            known = ", ".join(sorted(limit.name for limit in limits)) or "none"
            raise ConfigError(f"RateLimited(limit={verdict.limit!r}): there is no such limit; declared are: {known}")
        create = task_limit(job.queue, job.task)
        targets = [create]
    return tuple(
        Hold(
            limit=limit.name,
            group=job.group if limit.by == "group" else None,
            for_=verdict.retry_after,
            jitter=jitter,
            reason=f"429 in task {job.task!r}",
            create=create,
        )
        for limit in targets
    )
