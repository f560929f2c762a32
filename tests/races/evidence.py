"""What a run left behind, gathered from the store and from the handlers' own notes, in the words of the checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from paceline import App, Concurrency, Job, Queue, Rate
from paceline.limits import Kind

from .checkers import Begun, Busy, Ended, Started, by, crowded_windows, crowds, in_each_group
from .crew import Crew, Member
from .program import EVERYTHING, LIMITS, micros, monotonic

SOON = 500_000_000
"""ns after its beginning: whoever is killed by then may have begun late without being able to say so."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far the store's clock is in front of the monotonic one, in µs: at least and at most."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is known after a run."""

    starts: list[Started]
    """Where limits count them: at their stamps, or where handlers began that began late."""
    claimed: list[Started]
    """As their claims stamped them: leases begin there."""
    jobs: dict[str, Job[Any]]
    ends: list[Ended]
    begun: list[Begun]
    """Handlers and the starts they belong to, as they stand in the log."""
    stamped: list[Begun]
    """The same with the stamps that their claims gave."""
    killed_soon: set[tuple[str, int]]
    """Those whose process was killed a moment after they began: what they had to report may be lost."""
    handlers: list[Busy]
    """When each handler certainly ran, on the monotonic clock."""
    finished: dict[tuple[str, int], bool]
    """The starts whose handlers came to their end, and whether their process was killed later on."""
    completions: list[str]
    """The jobs whose completion the store accepted from a worker, as the workers noted it."""
    results: dict[str, Any]
    """What the store keeps as the result of completed jobs: handlers return the start they belong to."""
    ahead: Ahead

    @property
    def end_of(self) -> dict[str, Ended]:
        return {end.job: end for end in self.ends}


async def gather(app: App, crew: Crew, lease: int) -> Evidence:
    """Read the store and the notes."""
    queue = app.queue()
    ahead = await clock_ahead(app)
    jobs = await all_jobs(queue)
    member_of = {member.pid: member for member in crew.members}
    begins = crew.notes("begin")
    starts = [Started(each.job_id, micros(each.at), each.task, each.group) for each in await queue.starts()]
    stands = partial(_stands_at, by(lambda start: start.job, starts))
    ends = {(note["job"], note["started_at"]): note for note in crew.notes("end")}
    handlers = []
    for note in begins:
        end = ends.get((note["job"], note["started_at"]))
        # Its slot was its own for a lease from its start at least: a process that stalls for longer may lose it.
        leased_until = note["started_at"] - ahead.most + lease
        ran_until = _last_sign_of_life(note, end, member_of[note["pid"]]) // 1000
        handlers.append(
            Busy(note["job"], note["at"] // 1000, min(ran_until, leased_until), note["task"], note["group"])
        )
    return Evidence(
        starts=starts,
        claimed=_as_claimed(starts, begins),
        jobs={job.id: job for job in jobs},
        ends=[Ended(job.id, str(job.state), job.finished_at and micros(job.finished_at)) for job in jobs],
        begun=[Begun(note["job"], note["at"] // 1000, stands(note["job"], note["started_at"])) for note in begins],
        stamped=[Begun(note["job"], note["at"] // 1000, note["started_at"]) for note in begins],
        killed_soon={
            (note["job"], note["at"] // 1000)
            for note in begins
            if (killed_at := member_of[note["pid"]].killed_at) is not None and killed_at - note["at"] < SOON
        },
        handlers=handlers,
        finished={
            (job, stands(job, at)): member_of[note["pid"]].killed_at is not None for (job, at), note in ends.items()
        },
        completions=[note["job"] for note in crew.notes("completed")],
        results={job.id: stands(job.id, job.result_value) for job in jobs if str(job.state) == "completed"},
        ahead=ahead,
    )


def _stands_at(log: Mapping[str, list[Started]], job: str, stamp: int) -> int:
    """Where the start of a claim stands in the log: at its stamp, or where its handler began."""
    return min((start.at for start in log.get(job, ()) if start.at >= stamp), default=stamp)


def _as_claimed(starts: list[Started], begins: list[dict[str, Any]]) -> list[Started]:
    """The stamps of claims; a start that never began has not moved."""
    stamps = by(lambda note: note["job"], begins)
    found: list[Started] = []
    before: dict[str, int] = {}
    for start in sorted(starts, key=lambda start: start.at):
        notes = stamps.get(start.job, ())
        own = [at for note in notes if before.get(start.job, 0) < (at := note["started_at"]) <= start.at]
        found.append(replace(start, at=max(own, default=start.at)))
        before[start.job] = start.at
    return found


def _last_sign_of_life(begin: dict[str, Any], end: dict[str, Any] | None, member: Member) -> int:
    """A handler ran until it said so; one that was killed ran until then."""
    if end is not None:
        return int(end["at"])
    return member.killed_at if member.killed_at is not None else int(begin["at"])


async def all_jobs(queue: Queue) -> list[Job[Any]]:
    """Every job of a queue, page by page."""
    found: list[Job[Any]] = []
    while page := await queue.list(limit=1000, after=found[-1] if found else None):
        found += page
    return found


async def clock_ahead(app: App) -> Ahead:
    """Ask the store for its time between two looks at the monotonic clock; the narrowest of a few tries counts."""
    tries = []
    queue = app.queue("clock")
    for _ in range(10):
        before = monotonic()
        at = micros((await queue.add("look")).created_at)
        after = monotonic()
        tries.append(Ahead(at - after // 1000 - 1, at - before // 1000 + 1))
    return min(tries, key=lambda each: each.most - each.least)


# limits


def under(limit: str, of: Iterable[Any]) -> list[Any]:
    """The starts or intervals that a limit of the program counts."""
    return [each for each in of if each.task in (limit, EVERYTHING)]


def broken_limits(
    starts: Iterable[Started], busy: Iterable[Busy], limits: Mapping[str, tuple[Kind, str | None]] = LIMITS
) -> list[str]:
    """What is wrong with every limit of the program: rates by the log of starts, slots by the intervals."""
    log, intervals = list(starts), list(busy)
    wrong = []
    for name, (kind, scope) in limits.items():
        of = under(name, log if isinstance(kind, Rate) else intervals)
        check = partial(_broken, kind)
        wrong += [f"{name}: {each}" for each in (in_each_group(check, of) if scope else check(of))]
    return wrong


def _broken(kind: Kind, of: list[Any]) -> list[str]:
    if isinstance(kind, Rate):
        return crowded_windows(of, kind.max, kind.window)
    assert isinstance(kind, Concurrency)
    return crowds(of, kind.max)


def crowded_beginnings(evidence: Evidence, limits: Mapping[str, tuple[Kind, str | None]] = LIMITS) -> list[str]:
    """Rates that were broken on the handlers' own clock, where a service would see it: nothing is forgiven."""
    start_of = {(start.job, start.at): start for start in evidence.starts}
    begun = [
        replace(start, at=each.at)
        for each in evidence.begun
        if (each.job, each.at) not in evidence.killed_soon
        and (start := start_of.get((each.job, each.started_at))) is not None
    ]
    wrong = []
    for name, (kind, scope) in limits.items():
        if isinstance(kind, Rate):
            check = partial(crowded_windows, most=kind.max, per=kind.window)
            mine = under(name, begun)
            wrong += [f"{name}: {each}" for each in (in_each_group(check, mine) if scope else check(mine))]
    return wrong


async def is_empty(app: App) -> bool:
    """True when nothing waits or runs."""
    counts = await app.queue().counts()
    return not (counts["waiting"] or counts["delayed"] or counts["active"])
