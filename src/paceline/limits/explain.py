"""A job's standing in words: which limits refuse it, how full they are, who is ahead, the earliest start."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.clock import NEVER, Micros, to_datetime
from paceline.durations import format_duration
from paceline.job import ACTIVE, CANCELLED, DELAYED, WAITING, Blocked, Explanation, JobRecord
from paceline.limits.kind import Kind
from paceline.limits.rate import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How full one key is. `opens_at` is for a start of `cost`."""

    limit: str
    group: str | None
    kind: Kind
    used: int
    allowed: int | None
    hold_until: Micros
    hold_reason: str | None
    opens_at: Micros
    waiting: int
    now: Micros
    reserved_by: str | None = None
    cost: int = 1
    open: int = 0
    """The cost of starts that are late and have not begun yet; `used` counts it."""

    @property
    def never_above(self) -> int | None:
        """The largest cost that this key ever admits, where `cost` is more than that; None when it fits."""
        most = min((part.max for part in self.kind.parts() if isinstance(part, Rate)), default=self.cost)
        return most if most < self.cost else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a job stands: everything `explain` says, before it is put into words."""

    job: JobRecord
    now: Micros
    paused: list[str]
    known: bool
    keys: list[Usage]
    ahead: int
    """How many jobs of its lane go first: the same queue and group, under the same limits."""
    groups: int
    earliest: Micros | None
    """When it can start if all goes well; None when only a finish can help, or nothing at all."""


def explain(standing: Standing) -> Explanation:
    """The explanation of a `Standing`: everything in it was read in one step."""
    job, now = standing.job, standing.now
    if job.state is ACTIVE:
        text = f"job {job.id} ({job.task}) has run for {_ago(now - (job.started_at or now))} on worker {job.worker}"
        return Explanation(text, [], 0, to_datetime(job.started_at or now))
    if job.state not in (WAITING, DELAYED):
        return Explanation(_ended(job, now), [], 0, None)
    blocked = [_blocked(usage) for usage in standing.keys if usage.opens_at > now]
    reserved = [usage for usage in standing.keys if usage.reserved_by not in (None, job.id)]
    earliest = None if standing.paused or not standing.known else standing.earliest
    reasons = [f"{what} is paused" for what in standing.paused]
    if not standing.known:
        reasons.append(f"no worker of queue {job.queue!r} knows the task {job.task!r}")
    if job.due_at > now:
        reasons.append(f"it is due in {_ago(job.due_at - now)}")
    reasons += [_refusal(usage, now) for usage in standing.keys if usage.opens_at > now]
    reasons += [f"limit {usage.limit!r} is kept free for the bigger job {usage.reserved_by}" for usage in reserved]
    if standing.ahead:
        reasons.append(f"{standing.ahead} {_jobs(standing.ahead)} of its group {_go(standing.ahead)} first")
    if not reasons:
        turns = f" ({standing.groups} groups take turns)" if standing.groups > 1 else ""
        reasons.append(f"nothing refuses it: it starts as soon as a worker has a free slot{turns}")
    when = ""
    if earliest is not None and earliest > now:
        when = f"; the earliest start is in {_ago(earliest - now)}"
    text = f"job {job.id} ({job.task}) is {job.state}: {'; '.join(reasons)}{when}"
    return Explanation(text, blocked, standing.ahead, None if earliest is None else to_datetime(earliest))


def _ended(job: JobRecord, now: Micros) -> str:
    """What became of a job: how it ended, when, in which attempt, how long it ran."""
    ended = now if job.finished_at is None else job.finished_at
    verb = "was cancelled" if job.state is CANCELLED else str(job.state)
    text = f"job {job.id} ({job.task}) {verb} {_ago(now - ended)} ago"
    if job.started_at is not None:
        text += f" in attempt {job.attempts_made} of {job.attempts}, after it ran for {_ago(ended - job.started_at)}"
    return f"{text}: {job.error}" if job.error else text


def _blocked(usage: Usage) -> Blocked:
    until = None if usage.opens_at >= NEVER else to_datetime(usage.opens_at)
    return Blocked(usage.limit, usage.used, usage.allowed, until)


def _refusal(usage: Usage, now: Micros) -> str:
    name = f"limit {usage.limit!r}" + (f" of group {usage.group!r}" if usage.group is not None else "")
    if usage.never_above is not None:
        return (
            f"it can never fit: it costs {usage.cost}, and {name} never allows more than {usage.never_above}; "
            "it fails with NeverFits when a worker claims it"
        )
    if usage.hold_until > now:
        why = f" ({usage.hold_reason})" if usage.hold_reason else ""
        return f"{name} is held for {_ago(usage.hold_until - now)}{why}"
    full = f"{name} is full, {usage.used} of {usage.allowed}"
    if usage.cost > 1:
        full = f"{name} has no room for a cost of {usage.cost}, {usage.used} of {usage.allowed} used"
    if usage.opens_at >= NEVER:
        return f"{full}, until something finishes"
    return f"{full}, for {_ago(usage.opens_at - now)}"


def _ago(micros: Micros) -> str:
    """A duration for people: milliseconds below a minute, seconds above."""
    unit = 1000 if micros < 60_000_000 else 1_000_000
    return format_duration(max(-(-micros // unit), 1) * unit)


def _jobs(number: int) -> str:
    return "job" if number == 1 else "jobs"


def _go(number: int) -> str:
    return "goes" if number == 1 else "go"
