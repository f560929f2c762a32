"""What must be true of every log of starts, as plain functions: each gives what is wrong, nothing when all is well.

Instants are whole microseconds and nothing is rounded or forgiven. Windows and intervals are half-open: a start exactly
`per` after another is in another window, and a slot that is given back at an instant can be taken at that instant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

FINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Started:
    """One entry of the log of starts."""

    job: str
    at: int
    task: str = "work"
    group: str | None = None
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Busy:
    """A job that certainly had its slot from one instant until just before another."""

    job: str
    since: int
    until: int
    task: str = "work"
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How the store says that a job ended: `at` is None while it has not."""

    job: str
    state: str
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A handler's own note that it began: when on its own clock, and which start it belongs to."""

    job: str
    at: int
    started_at: int


# limits


def crowded_windows(starts: Iterable[Started], most: int, per: int) -> list[str]:
    """Windows `[t, t + per)` with more than `most` starts, by summed cost. The fullest of all begin with a start."""
    log = sorted(starts, key=lambda start: start.at)
    wrong = []
    last, inside = 0, 0
    for first, start in enumerate(log):
        while last < len(log) and log[last].at < start.at + per:
            inside += log[last].cost
            last += 1
        if inside > most:
            jobs = ", ".join(each.job for each in log[first:last])
            wrong.append(f"{inside} starts, {most} allowed, in {per} µs from {start.at}: {jobs}")
        inside -= start.cost
    return wrong


def crowds(intervals: Iterable[Busy], most: int) -> list[str]:
    """Instants at which more than `most` had a slot at the same time."""
    wrong = []
    busy: dict[int, Busy] = {}
    # Ends sort before beginnings of the same instant; an interval without length never holds anything.
    changes = [
        change
        for number, each in enumerate(intervals)
        if each.until > each.since
        for change in ((each.since, 1, number, each), (each.until, 0, number, each))
    ]
    for at, begins, number, each in sorted(changes, key=lambda change: change[:3]):
        if not begins:
            del busy[number]
            continue
        busy[number] = each
        if len(busy) > most:
            jobs = ", ".join(sorted(other.job for other in busy.values()))
            wrong.append(f"{len(busy)} at once, {most} allowed, at {at}: {jobs}")
    return wrong


def in_each_group(check: Callable[[list[T]], list[str]], of: Iterable[T]) -> list[str]:
    """The same check for every group by itself. Whoever has no group has no limit by group."""
    groups = by(lambda each: each.group, of)
    groups.pop(None, None)
    return [f"group {group}: {wrong}" for group in sorted(groups) for wrong in check(groups[group])]


def certainly_busy(starts: Iterable[Started], ends: Mapping[str, Ended], lease: int) -> list[Busy]:
    """From when until when each start certainly had its slots.

    The last start of a job has them until the job ended, or, while it has not, at least for its lease. An earlier one
    lost its worker, for otherwise there would be no later one: it had them for its lease at the very least.
    """
    intervals = []
    for job, log in by(lambda start: start.job, starts).items():
        log.sort(key=lambda start: start.at)
        for start in log:
            ended = ends.get(job) if start is log[-1] else None
            until = start.at + lease if ended is None or ended.at is None else ended.at
            intervals.append(Busy(job, start.at, until, start.task, start.group))
    return intervals


# jobs


def lost(accepted: Iterable[str], ends: Iterable[Ended]) -> list[str]:
    """Accepted jobs that are not in exactly one final state."""
    states = by(lambda end: end.job, ends)
    wrong = []
    for job in sorted(set(accepted)):
        found = [end.state for end in states.get(job, ())]
        if len(found) != 1 or found[0] not in FINAL:
            wrong.append(f"{job}: {', '.join(found) or 'gone'}")
    return wrong


def made_up(tried: Collection[str], found: Iterable[str]) -> list[str]:
    """Jobs that nobody ever asked for."""
    known = set(tried)
    return [f"{job}: never added" for job in sorted(set(found) - known)]


def started_after_the_end(starts: Iterable[Started], ends: Mapping[str, Ended]) -> list[str]:
    """Jobs that started when they had ended already: they would be completed twice."""
    wrong = []
    for start in starts:
        ended = ends.get(start.job)
        if ended is not None and ended.state in FINAL and (ended.at is None or start.at > ended.at):
            wrong.append(f"{start.job}: {ended.state} at {ended.at}, started at {start.at}")
    return wrong


def completed_twice(completions: Iterable[str]) -> list[str]:
    """Jobs whose completion was accepted more than once."""
    return [f"{job}: completed {times} times" for job, times in sorted(Counter(completions).items()) if times > 1]


def completed_by_another_run(
    results: Mapping[str, object], starts: Iterable[Started], finished: Collection[tuple[str, int]]
) -> list[str]:
    """Completed jobs whose result is not that of their last start, or is that of a handler that never ended.

    A handler's result is the start it belongs to, so what is kept says which of several runs was accepted.
    """
    last = _last(starts)
    return [
        f"{job}: completed by the run of {started_at}, last started at {last.get(job)}"
        for job, started_at in results.items()
        if started_at != last.get(job) or (job, started_at) not in finished
    ]


def ran_again_without_a_kill(finished: Mapping[tuple[str, int], bool], starts: Iterable[Started]) -> list[str]:
    """Jobs that started again although the worker that had run them to the end lived on: their end was lost."""
    last = _last(starts)
    return [
        f"{job}: ended in a process that was not killed, and started again at {last[job]}"
        for (job, started_at), killed in finished.items()
        if started_at != last[job] and not killed
    ]


def _last(starts: Iterable[Started]) -> dict[str, int]:
    return {start.job: start.at for start in sorted(starts, key=lambda start: start.at)}


def started_again_too_early(starts: Iterable[Started], lease: int) -> list[str]:
    """Second starts before the lease of the first could have ended: a lease is renewed, never cut short."""
    wrong = []
    for job, log in by(lambda start: start.job, starts).items():
        for first, second in pairwise(sorted(start.at for start in log)):
            if second < first + lease:
                wrong.append(f"{job}: started at {first} and again {second - first} µs later, lease {lease} µs")
    return wrong


# handlers


def begun_without_a_start(begun: Iterable[Begun], starts: Iterable[Started]) -> list[str]:
    """Handlers that ran without a start in the log: it has exactly one for each of them."""
    known = Counter((start.job, start.at) for start in starts)
    seen = Counter((each.job, each.started_at) for each in begun)
    return [
        f"{job}: begun {times} times for {known[job, at]} starts at {at}"
        for (job, at), times in sorted(seen.items())
        if times > known[job, at] or times > 1
    ]


def begun_too_early(begun: Iterable[Begun], ahead: int) -> list[str]:
    """Handlers that began before their start; the store's clock is at most `ahead` in front of the handlers' clock."""
    return [
        f"{each.job}: begun {each.started_at - each.at - ahead} µs before its start"
        for each in begun
        if each.at + ahead < each.started_at
    ]


def prompt(begun: Sequence[Begun], within: int) -> list[Begun]:
    """Those that began at most this much later after their start than the quickest of all.

    Any window of `per - within` on the handlers' clock then lies inside one of `per` on the store's clock, whatever
    the two clocks show: as many of them begin in the shorter one as may start in the longer one, and no more.
    """
    quickest = min((each.at - each.started_at for each in begun), default=0)
    return [each for each in begun if each.at - each.started_at - quickest <= within]


def by(key: Callable[[T], K], of: Iterable[T]) -> dict[K, list[T]]:
    """Sort into lists by a key."""
    found: defaultdict[K, list[T]] = defaultdict(list)
    for each in of:
        found[key(each)].append(each)
    return dict(found)
