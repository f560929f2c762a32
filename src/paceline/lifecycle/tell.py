"""What a log says of jobs: a line when one starts, a line when its run ends. Off unless somebody listens."""

from __future__ import annotations

import logging
from typing import Any

from paceline.clock import Micros
from paceline.durations import format_duration
from paceline.job import JobRecord
from paceline.stores.interface import Finish, Outcome

log = logging.getLogger("paceline.job")
"""INFO: starts and ends; WARNING: runs that failed."""

_ENDS = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.RETRY: "failed and will be tried again",
    Outcome.RETURNED: "was sent back by the service",
    Outcome.RELEASED: "was handed back",
    Outcome.CRASHED: "crashed",
}


def tells() -> bool:
    """False when nobody wants to hear: nothing is put into words then."""
    return log.isEnabledFor(logging.INFO)


def tell_start(job: JobRecord) -> None:
    """A job starts."""
    log.info("%s started", name_of(job), extra=facts_of(job, "started"))


def tell_end(job: JobRecord, end: Finish, now: Micros) -> None:
    """The run of a job ended."""
    took = max(now - (job.started_at or now), 0)
    text = f"{name_of(job)} {_ENDS[end.outcome]} after {format_duration(took // 1000 * 1000 or 1000)}"
    if end.outcome is Outcome.RETRY and end.after:
        text += f", in {format_duration(end.after)}"
    if end.error:
        text += f": {end.error}"
    failed = end.outcome in (Outcome.FAILED, Outcome.RETRY, Outcome.CRASHED)
    extra = facts_of(job, str(end.outcome)) | {"seconds": took / 1_000_000}
    log.log(logging.WARNING if failed else logging.INFO, "%s", text, extra=extra)


def name_of(job: JobRecord) -> str:
    """A job in a line: its task, its group, its id."""
    group = f" [{job.group}]" if job.group is not None else ""
    attempt = f" (attempt {job.attempts_made} of {job.attempts})" if job.attempts_made > 1 else ""
    return f"{job.task}{group} {job.id}{attempt}"


def facts_of(job: JobRecord, event: str) -> dict[str, Any]:
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
