"""What a log says of jobs: a line when one starts, a line when its run ends, failures with their traceback."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any

from paceline.clock import Micros
from paceline.durations import format_duration
from paceline.job import JobRecord
from paceline.stores.interface import MAX_CRASHES, Failed, Finish, Outcome
from paceline.text import MAX_MESSAGE, clean, has_origin, is_a, stack_of, trace
from paceline.verdicts import Verdict

log = logging.getLogger("paceline.job")
"""INFO: starts and ends; WARNING: runs that failed and are tried again; ERROR: jobs that failed for good."""

_FAILURES = frozenset({Outcome.FAILED, Outcome.RETRY, Outcome.CRASHED})
_ENDS = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.RETRY: "failed and will be tried again",
    Outcome.RETURNED: "was sent back by the service",
    Outcome.RELEASED: "was handed back",
    Outcome.CRASHED: "crashed",
}


def logs_starts() -> bool:
    """False when no handler wants lines about ordinary runs: nothing is put into words then."""
    return log.isEnabledFor(logging.INFO)


def logs_end(end: Finish) -> bool:
    """Whether a log wants this end: failures are asked for by their own level."""
    outcome = end.outcome
    level = logging.INFO if outcome is Outcome.COMPLETED or outcome not in _FAILURES else logging.WARNING
    return log.isEnabledFor(level)


def log_start(job: JobRecord) -> None:
    """A job starts."""
    log_safely(log, logging.INFO, f"{name_of(job)} started", facts_of(job, "started"))


def log_end(job: JobRecord, end: Finish, now: Micros, error: BaseException | None = None) -> None:
    """The run of a job ended; an error that its handler raised is shown with its traceback."""
    took = max(now - (job.started_at or now), 0)
    text = f"{name_of(job)} {_ENDS[end.outcome]} after {format_duration(took // 1000 * 1000 or 1000)}"
    if end.outcome is Outcome.RETRY and end.after:
        text += f", in {format_duration(end.after)}"
    if end.error:
        text += f": {clean(end.error, MAX_MESSAGE)}"
    facts = facts_of(job, str(end.outcome)) | {"seconds": took / 1_000_000}
    failed = end.outcome in _FAILURES
    shown = error if failed and error is not None and _has_a_story(error) else None
    log_safely(log, _level(job, end), text, facts, shown)


def log_failed(jobs: Iterable[Failed]) -> None:
    """Jobs that the store itself failed, as its answer says: no run of theirs ends here."""
    for job in jobs:
        text = f"{_label(job)} failed: {clean(job.error, MAX_MESSAGE)}"
        log_safely(log, logging.ERROR, text, facts_of(job, str(Outcome.FAILED)))


def _level(job: JobRecord, end: Finish) -> int:
    if end.outcome not in _FAILURES:
        return logging.INFO
    final = end.outcome is Outcome.FAILED or (end.outcome is Outcome.CRASHED and job.crashes + 1 >= MAX_CRASHES)
    return logging.ERROR if final else logging.WARNING


def _has_a_story(error: BaseException) -> bool:
    """A verdict says it all by itself, unless it came from another error."""
    return not is_a(error, Verdict) or has_origin(error)


def log_safely(
    log: logging.Logger, level: int, text: str, facts: dict[str, Any] | None = None, error: BaseException | None = None
) -> None:
    """Log a line and an error; whatever its text is, and also where a handler of the program raises."""
    try:
        record = log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None, "log_safely", facts)
        if error is not None:
            stack = stack_of(error)
            record.exc_info = (type(error), error, None if stack is None else stack.tb_next)
            # Put into words here: formatters take this text, and every stream can write it.
            record.exc_text = trace(error)
        log.handle(record)
    except Exception:
        if logging.raiseExceptions:
            traceback.print_exc()


def name_of(job: JobRecord) -> str:
    """A job in a line: its task, its group, its id."""
    attempt = f" (attempt {job.attempts_made} of {job.attempts})" if job.attempts_made > 1 else ""
    return f"{_label(job)}{attempt}"


def _label(job: JobRecord | Failed) -> str:
    group = f" [{job.group}]" if job.group is not None else ""
    return f"{job.task}{group} {job.id}"


def facts_of(job: JobRecord | Failed, event: str) -> dict[str, Any]:
    """A job as fields of a log record."""
    return {
        "event": event,
        "job_id": job.id,
        "task": job.task,
        "queue": job.queue,
        "group": job.group,
        "attempt": job.attempts_made,
        "worker": job.worker,
    }
