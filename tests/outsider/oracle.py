"""What must be true of a history, decided from its notes and from `starts()`. Each check gives what is wrong.

Limits are checked at every start, under the numbers in force at that instant; starts within `BLUR` of a change are left
out, because a note does not say when exactly inside a call the change took effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec

import paceline
from paceline import AllOf, Concurrency, Delay, EvenlySpaced, Limit, Rate, Start
from paceline.limits import Kind

from .world import World

BLUR = 0.03
"""Seconds around a change during which either numbers may be in force."""
MICRO = 1e-6


@dataclass
class Evidence:
    """What one history left behind."""

    world: World
    notes: list[dict[str, Any]]
    starts: dict[str, list[Start]]
    """By queue."""
    states: dict[str, str]
    """How each job that is still known ended."""
    killed: dict[int, float] = field(default_factory=dict)
    """When the programs that were killed were killed, by number."""

    def of(self, *what: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note["what"] in what]

    @cached_property
    def claimed(self) -> dict[str, list[Start]]:
        """The starts as their claims stamped them: gaps, pauses and holds were decided there."""
        # A job that was handed back before its handler began stands where that was written; its claim is not known.
        moved = {
            queue: [
                msgspec.structs.replace(start, at=claimed)
                for start in starts
                if (claimed := self.claimed_at.get((start.job_id, start.at))) is not None
            ]
            for queue, starts in self.starts.items()
        }
        return {queue: sorted(starts, key=lambda start: start.at) for queue, starts in moved.items()}

    @cached_property
    def claimed_at(self) -> dict[tuple[str, datetime], datetime]:
        """When each start whose handler began was claimed: a late handler has moved it forward."""
        stamps = defaultdict(list)
        for note in self.of("begin"):
            stamps[note["job"]].append(note["started_at"])
        found, before = {}, defaultdict[str, float](float)
        every = [start for starts in self.starts.values() for start in starts]
        for start in sorted(every, key=lambda start: start.at):
            at = start.at.timestamp()
            own = [stamp for stamp in stamps[start.job_id] if before[start.job_id] < stamp < at + MICRO]
            if own:
                found[start.job_id, start.at] = datetime.fromtimestamp(max(own), UTC)
            elif not stamps[start.job_id]:
                found[start.job_id, start.at] = start.at
            before[start.job_id] = at + MICRO
        return found


def findings(evidence: Evidence) -> list[str]:
    """Everything that is wrong."""
    wrong = list(_limits(evidence))
    wrong += _pauses(evidence)
    wrong += _holds(evidence)
    wrong += _jobs(evidence)
    wrong += _runs(evidence)
    return wrong


# limits


@dataclass(frozen=True)
class Phase:
    """A time during which one kind was certainly in force, and since when starts count."""

    kind: Kind
    since: float
    until: float
    counted_from: float


def _limits(evidence: Evidence) -> Iterator[str]:
    for limit in evidence.world.limits.values():
        phases = _phases(limit, evidence)
        for group, starts in _keys(limit, evidence.starts):
            for phase in phases:
                yield from _check_windows(f"{limit.name} {group or ''}", phase, limit, starts, evidence.claimed_at)
        for group, starts in _keys(limit, evidence.claimed):
            for phase in phases:
                yield from _check_gaps(f"{limit.name} {group or ''}", phase, limit, starts)
        yield from _check_concurrency(limit, phases, evidence)


def _phases(limit: Limit, evidence: Evidence) -> list[Phase]:
    """The kinds of a limit over time: declared, overridden, expired, lifted, dropped, declared again."""
    changes: list[tuple[float, float, Kind | None, float | None]] = [(0, 0, limit.kind, 0)]
    for note in evidence.of("override", "lift", "drop", "declare"):
        if note["limit"] != limit.name:
            continue
        since, until = note["since"], note["at"]
        match note["what"]:
            case "override":
                changes.append((since, until, eval(note["kind"], vars(paceline)), None))
                if note["expires"]:
                    changes.append((since + 0.1, until + 0.1, limit.kind, None))
            case "drop":
                changes.append((since, until, None, None))
            case "declare":
                changes.append((since, until, limit.kind, since))
            case _:
                changes.append((since, until, limit.kind, None))
    changes = _in_order(changes)
    phases, counted_from = [], float("inf")
    ends = [change[0] for change in changes[1:]] + [float("inf")]
    for (begun, since, kind, forgets), until in zip(changes, ends, strict=True):
        # A limit counts from its first Rate on; one that was dropped begins anew.
        counted_from = counted_from if forgets is None else float("inf")
        if kind is not None and any(isinstance(part, Rate) for part in _parts(kind)):
            counted_from = min(counted_from, since if begun else 0)
        if kind is not None and since + BLUR < until - BLUR:
            phases.append(Phase(kind, since + BLUR, until - BLUR, counted_from))
    return phases


def _in_order(changes: list[tuple[float, float, Kind | None, float | None]]) -> list[Any]:
    """An expiry counts only while its override is the latest word."""
    ordered: list[Any] = []
    dropped = False
    for change in sorted(changes, key=lambda change: change[0]):
        is_expiry = (
            change[2] is not None and change[3] is None and (change[0] - 0.1, change[1] - 0.1) in _spans(changes)
        )
        if is_expiry and ordered and (ordered[-1][0], ordered[-1][1]) != (change[0] - 0.1, change[1] - 0.1):
            continue
        if dropped and change[2] is not None and change[3] is None:
            continue
        dropped = change[2] is None
        ordered.append(change)
    return ordered


def _spans(changes: list[tuple[float, float, Kind | None, float | None]]) -> set[tuple[float, float]]:
    return {(change[0], change[1]) for change in changes}


def _keys(limit: Limit, of_queues: dict[str, list[Start]]) -> list[tuple[str | None, list[Start]]]:
    """The starts that each counter of a limit covers, in order."""
    covered = [
        start
        for queue, starts in of_queues.items()
        for start in starts
        if (limit.queues is None or queue in limit.queues) and (limit.tasks is None or start.task in limit.tasks)
    ]
    covered.sort(key=lambda start: start.at)
    if limit.by is None:
        return [(None, covered)]
    groups = defaultdict(list)
    for start in covered:
        if start.group is not None:
            groups[start.group].append(start)
    return list(groups.items())


def _parts(kind: Kind) -> tuple[Kind, ...]:
    return tuple(part for each in kind.kinds for part in _parts(each)) if isinstance(kind, AllOf) else (kind,)


def _check_windows(
    name: str, phase: Phase, limit: Limit, starts: list[Start], claimed_at: Mapping[tuple[str, datetime], datetime]
) -> Iterator[str]:
    """Rates, where limits count starts. One that was claimed under other numbers is decided by those."""
    times = [
        (start.at.timestamp(), _cost(start, limit.name), claimed_at.get((start.job_id, start.at), start.at).timestamp())
        for start in starts
    ]
    counted = [each for each in times if each[2] >= phase.counted_from + BLUR]
    for part in _parts(phase.kind):
        if isinstance(part, Rate):
            yield from _crowded(name, part, phase, counted)


def _check_gaps(name: str, phase: Phase, limit: Limit, starts: list[Start]) -> Iterator[str]:
    times = [(start.at.timestamp(), _cost(start, limit.name)) for start in starts]
    for part in _parts(phase.kind):
        if isinstance(part, Delay | EvenlySpaced):
            yield from _too_close(name, part, phase, times)


def _crowded(name: str, rate: Rate, phase: Phase, times: list[tuple[float, int, float]]) -> Iterator[str]:
    per = rate.per.total_seconds()
    first = inside = 0
    for index, (at, cost, claimed) in enumerate(times):
        inside += cost
        while times[first][0] <= at - per + MICRO:
            inside -= times[first][1]
            first += 1
        last_of_instant = index + 1 == len(times) or times[index + 1][0] > at
        if phase.since < claimed and at < phase.until and last_of_instant and inside > rate.max:
            yield f"{name}: {inside} in {per} s up to {at:.6f}, {rate} allows {rate.max}"


def _too_close(name: str, part: Delay | EvenlySpaced, phase: Phase, times: list[tuple[float, int]]) -> Iterator[str]:
    for (before, cost), (at, _) in pairwise(times):
        gap = part.gap.total_seconds() if isinstance(part, Delay) else part.per.total_seconds() / part.max * cost
        if phase.since < before and phase.since < at < phase.until and at - before < gap - 2 * MICRO:
            yield f"{name}: {at - before:.6f} s after the start before, {part} asks for {gap:.6f}"


def _check_concurrency(limit: Limit, phases: list[Phase], evidence: Evidence) -> Iterator[str]:
    """Handlers that ran at the same time, at the beginning of each; a killed program's handlers end with it."""
    most = [(phase, part.max) for phase in phases for part in _parts(phase.kind) if isinstance(part, Concurrency)]
    if not most:
        return
    queues = {start.job_id: queue for queue, starts in evidence.starts.items() for start in starts}
    for group, intervals in _running(limit, queues, evidence):
        for begin, _, job in intervals:
            for phase, maximum in most:
                if phase.since + 0.3 < begin < phase.until:
                    others = [other for since, until, other in intervals if since <= begin < until]
                    if len(others) > maximum:
                        busy = f"{len(others)} at once when {job} began, {maximum} allowed: {others}"
                        yield f"{limit.name} {group or ''}: {busy}"


def _running(limit: Limit, queues: dict[str, str], evidence: Evidence) -> list[tuple[str | None, list[Any]]]:
    open_: dict[Any, Any] = {}
    found: dict[str | None, list[Any]] = defaultdict(list)
    for note in evidence.of("begin", "end", "permit", "permit-end"):
        key = (note["program"], note.get("permit") or (note["job"], note["started_at"]))
        if note["what"] in ("end", "permit-end"):
            group, begin, job = open_.pop(key, (None, None, None))
            if begin is not None:
                found[group].append((begin, note["at"], job))
        elif note["what"] == "permit":
            if note["limit"] == limit.name:
                open_[key] = (None, note["at"], note["permit"])
        elif (limit.tasks is None or note["task"] in limit.tasks) and (
            limit.queues is None or queues.get(note["job"]) in limit.queues
        ):
            group = note["group"] if limit.by else None
            if not (limit.by and group is None):
                open_[key] = (group, note["at"], note["job"])
    for (program, _), (group, begin, job) in open_.items():
        found[group].append((begin, evidence.killed.get(program, begin), job))
    return list(found.items())


def _cost(start: Start, limit: str) -> int:
    return start.cost if isinstance(start.cost, int) else start.cost.get(limit, 1)


# pauses and holds


def _pauses(evidence: Evidence) -> Iterator[str]:
    since: dict[str, float] = {}
    for note in evidence.of("pause", "resume"):
        key = repr(note["pause"])
        if note["what"] == "pause":
            since.setdefault(key, note["at"] + BLUR)
            continue
        queue, task, group = note["pause"]
        begin, end = since.pop(key, float("inf")), note["since"] - BLUR
        for start in evidence.claimed[queue]:
            if begin < start.at.timestamp() < end and task in (None, start.task) and group in (None, start.group):
                yield f"{start.job_id} started at {start.at} while {note['pause']} was paused"


def _holds(evidence: Evidence) -> Iterator[str]:
    releases = evidence.of("release", "drop")
    for note in evidence.of("hold"):
        limit = evidence.world.limits[note["limit"]]
        begin, end = note["at"] + BLUR, note["since"] + note["seconds"] - BLUR
        for release in releases:
            if release["limit"] == limit.name and release["at"] > note["since"]:
                end = min(end, release["since"] - BLUR)
        for _, starts in _keys(limit, evidence.claimed):
            for start in starts:
                if begin < start.at.timestamp() < end:
                    yield f"{start.job_id} started at {start.at} while {limit.name} was held"


# jobs


def _jobs(evidence: Evidence) -> Iterator[str]:
    """Accepted jobs end in one final state; only a drain may have removed them while they waited."""
    drains = evidence.of("drain")
    succeeded = {note["job"] for note in evidence.of("end") if note["error"] is None}
    queues = defaultdict(set)
    for note in evidence.of("added"):
        for job in note["jobs"]:
            # An id that exists is given back, from whatever queue it was added to first.
            queues[job].add(note["queue"])
    for note in evidence.of("added"):
        for job in note["jobs"]:
            drained = any(drain["queue"] in queues[job] and drain["at"] > note["since"] for drain in drains)
            state = evidence.states.get(job)
            if state is None and (job in succeeded or not drained):
                yield f"{job} was accepted and is gone"
            elif state is not None and state not in ("completed", "failed", "cancelled"):
                yield f"{job} is still {state}"


def _runs(evidence: Evidence) -> Iterator[str]:
    """A run that succeeded in a program that was not killed is the job's last; every run has its start."""
    stamps: dict[str, list[float]] = defaultdict(list)
    for starts in evidence.starts.values():
        for start in starts:
            stamps[start.job_id].append(start.at.timestamp())
    retried = {note["job"] for note in evidence.of("retried")}
    last_begin: dict[str, float] = {}
    for note in evidence.of("begin"):
        last_begin[note["job"]] = max(last_begin.get(note["job"], 0), note["started_at"])
        # Where a handler began late, its start stands there.
        if not any(stamp > note["started_at"] - 2 * MICRO for stamp in stamps[note["job"]]):
            yield f"{note['job']} ran for a start at {note['started_at']} that is not in the log"
    for note in evidence.of("end"):
        again = note["error"] is None and last_begin.get(note["job"], 0) > note["started_at"] + MICRO
        if again and note["program"] not in evidence.killed and note["job"] not in retried:
            yield f"{note['job']} succeeded and ran again"
    seen: set[tuple[str, float]] = set()
    for note in evidence.of("begin"):
        run = (note["job"], note["started_at"])
        if run in seen:
            yield f"{note['job']} began twice for one start"
        seen.add(run)


def summary(wrong: Iterable[str], most: int = 12) -> str:
    """The first few, a line each."""
    lines = list(wrong)
    more = f"\n… and {len(lines) - most} more" if len(lines) > most else ""
    return "\n".join(lines[:most]) + more
