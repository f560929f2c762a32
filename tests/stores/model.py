"""What a store must decide, in the plainest words: lists that are looked through from one end to the other.

No heaps, no lanes, no rings, nothing remembered that can be counted. It is slow, and it is the reference:
`test_model.py` drives it and a store together, and every difference is a mistake in one of the two. It shares no code
with the stores or with the limits: kinds, jobs and finishes are used as plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

from paceline.errors import ConfigError, GroupFull, JobNotFound, MoveNotAllowed, NeverFits
from paceline.job import MOVES, JobState, Move, NewJob
from paceline.limits import Backoff, Concurrency, Delay, EvenlySpaced, Kind, Limit, Rate
from paceline.limits.memory import Remembered, remember
from paceline.stores.interface import Ask, Finish, Hold, Lease, Outcome, Override, Target

NEVER = 1 << 62
ONE = 65536
LIVES = 3

Key = tuple[str, str | None]

WAITING, DELAYED, ACTIVE = JobState.WAITING, JobState.DELAYED, JobState.ACTIVE
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED
ENDED = (COMPLETED, FAILED, CANCELLED)


@dataclass(eq=False)
class ModelJob:
    """One job and everything that happened to it."""

    new: NewJob
    order: int
    created_at: int
    due_at: int
    state: JobState = WAITING
    filed: bool = False
    """Waiting, and seen as such by the queue: a delayed job is filed by the first claim after it is due."""
    attempts_made: int = 0
    crashes: int = 0
    returns: int = 0
    fence: int = 0
    worker: str | None = None
    lease_until: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    result: bytes | None = None
    error: str | None = None
    cancel_asked: bool = False
    keys: list[tuple[Key, int]] = field(default_factory=list)
    """What its run is charged to."""

    @property
    def place(self) -> tuple[int, int]:
        return self.new.priority, self.order


@dataclass(eq=False)
class ModelPermit:
    """A start that is no job, kept only where it matters how many run."""

    id: str
    keys: list[tuple[Key, int]]
    started_at: int
    lease_until: int = 0


@dataclass(eq=False)
class ModelPart:
    """One simple kind under one key, and what it remembers of the starts."""

    kind: Any
    starts: list[tuple[int, int]] = field(default_factory=list)
    """Rate: every start ever, with its cost. Those that nobody had to remember may look younger than they were."""
    last: Fraction | None = None
    """Delay, EvenlySpaced: the last start; spacing counts on from the exact instant at which it was due."""
    last_cost: int = 1

    def opens_at(self, running: int, cost: int) -> int:
        kind = self.kind
        if isinstance(kind, Concurrency):
            return 0 if running < kind.max else NEVER
        if isinstance(kind, Rate):
            if cost > kind.max:
                return NEVER
            instants = sorted({0, *(at + kind.window for at, _ in self.starts)})
            return next(at for at in instants if self.spent(at) + cost <= kind.max)
        if self.last is None:
            return 0
        if isinstance(kind, Delay):
            return ceil(self.last) + kind.gap_us
        return ceil(self.last + self.last_cost * Fraction(kind.per_us, kind.max))

    def spent(self, now: int) -> int:
        """The cost of the starts in (now - window, now], and of those that come later."""
        return sum(cost for at, cost in self.starts if at > now - self.kind.window)

    def start(self, running: int, cost: int, now: int) -> None:
        if isinstance(self.kind, Rate):
            self.starts.append((now, cost))
        elif isinstance(self.kind, EvenlySpaced):
            interval = Fraction(self.kind.per_us, self.kind.max)
            due = Fraction(0) if self.last is None else self.last + self.last_cost * interval
            # A start that was forced too early must not open the key earlier than it would have opened without it.
            self.last_cost = cost if ceil(due) <= now else max(cost, ceil((due - now) / interval))
            self.last = due if ceil(due) == now else Fraction(now)
        elif isinstance(self.kind, Delay):
            self.last, self.last_cost = max(Fraction(now), self.last or Fraction(0)), 1

    def idle(self, now: int) -> bool:
        if isinstance(self.kind, Remembered) and (last := self.last_start()) is not None:
            return last + max(self.kind.window, self.kind.spacing * self.cost_of_last()) <= now
        if isinstance(self.kind, Rate):
            return self.spent(now) == 0
        return self.last is None or self.opens_at(0, 1) < now

    def last_start(self) -> int | None:
        if isinstance(self.kind, Rate):
            return max((at for at, _ in self.starts), default=None)
        return None if self.last is None else ceil(self.last)

    def cost_of_last(self) -> int:
        """What was counted at the instant of the last start."""
        if isinstance(self.kind, Rate):
            return sum(cost for at, cost in self.starts if at == self.last_start())
        return self.last_cost

    def go_on(self, old: list[ModelPart]) -> None:
        """Go on with what an old part remembers: one alike, else one that knows more than the last start."""
        logs = [other for other in old if isinstance(other.kind, Rate)]
        alike = logs if isinstance(self.kind, Rate) else [other for other in old if type(other.kind) is type(self.kind)]
        known = alike or logs or old
        if not known or isinstance(self.kind, Concurrency):
            return
        best = max(known, key=lambda other: (getattr(other.kind, "max", 1) if other in logs else 1, other.last_start()))
        if isinstance(self.kind, Rate):
            self.starts = best.blurred() if best in logs else [(best.last_start() or 0, best.last_cost)]
        else:
            self.last, self.last_cost = Fraction(best.last_start() or 0), best.cost_of_last()

    def blurred(self) -> list[tuple[int, int]]:
        """What a rate had to know: its youngest starts, up to its maximum. The others look as young as the next."""
        older = [at for at, _ in self.starts if sum(cost for other, cost in self.starts if other > at) >= self.kind.max]
        youngest = max(older, default=0)
        return [(max(at, youngest), cost) if at in older else (at, cost) for at, cost in self.starts]


@dataclass(eq=False)
class ModelKey:
    """One counter of a limit. Who runs under it is not kept here: it is counted among jobs and permits."""

    kind: Kind
    parts: list[ModelPart] = field(default_factory=list)
    memory: ModelPart | None = None
    """What counts for other kinds of this key: those that ruled before, and those that rule when an override ends."""
    hold_until: int = 0
    held_at: int = 0
    refusals: int = 0

    def __post_init__(self) -> None:
        self.parts = [ModelPart(part) for part in self.kind.parts()]

    def hold(self, until: int, now: int) -> None:
        self.held_at = now
        self.hold_until = max(self.hold_until, until)

    def idle(self, now: int) -> bool:
        """Nothing that happened under it matters any more."""
        return not self.refusals and self.hold_until <= now and all(part.idle(now) for part in self.kept)

    @property
    def kept(self) -> list[ModelPart]:
        return self.parts + ([self.memory] if self.memory is not None else [])

    def change(self, kind: Kind, beneath: list[Kind], group: str | None) -> None:
        """Other numbers: each new part goes on with what an old one like it remembers, else with the last start."""
        old = [part for part in self.kept if part.last_start() is not None]
        others = [part.kind for part in old]
        others += [part for each in beneath for part in each.parts() if not isinstance(part, Concurrency)]
        log = remember(kind.parts(), others, may_be_forgotten=group is not None)
        if kind != self.kind:
            self.kind = kind
            self.parts = [ModelPart(part) for part in kind.parts()]
            for part in self.parts:
                part.go_on(old)
        self.memory = None if log is None else ModelPart(log)
        if self.memory is not None:
            self.memory.go_on(old)


@dataclass(eq=False)
class ModelReservation:
    """Room that is kept free under one key for a big job, or for a big permit that somebody waits for."""

    key: Key
    holder: ModelJob | str
    deadline: int


@dataclass(eq=False)
class ModelGroup:
    turn: int = 0
    filed: int = 0


@dataclass(eq=False)
class ModelQueue:
    virtual_time: int = 0
    filings: int = 0
    groups: dict[str | None, ModelGroup] = field(default_factory=dict)
    paused: bool = False
    paused_tasks: set[str] = field(default_factory=set)
    paused_groups: set[str] = field(default_factory=set)
    filters: list[frozenset[str]] = field(default_factory=list)
    """The sets of tasks that claims have named so far."""


@dataclass(frozen=True)
class Answer:
    """What a claim gives."""

    jobs: list[ModelJob]
    lost: list[str]
    replayed: bool = False


class Model:
    """The reference store. `now` is moved by whoever drives it."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.jobs: list[ModelJob] = []
        self.permits: list[ModelPermit] = []
        self.queues: dict[str, ModelQueue] = {}
        self.limits: dict[str, Limit] = {}
        self.overrides: list[Override] = []
        self.keys: dict[Key, ModelKey] = {}
        self.reservations: list[ModelReservation] = []
        self.last_claims: dict[str, tuple[str, list[tuple[str, int]]]] = {}
        self.log: list[tuple[str, str, int]] = []
        self.inserted = 0
        self.fences = 0

    # looking

    def job(self, job_id: str) -> ModelJob | None:
        return next((job for job in self.jobs if job.new.id == job_id), None)

    def seen(self, job: ModelJob) -> JobState:
        """A delayed job that is due is waiting, whether a claim noticed or not."""
        return WAITING if job.state is DELAYED and job.due_at <= self.now else job.state

    def queue(self, name: str) -> ModelQueue:
        return self.queues.setdefault(name, ModelQueue())

    def counts(self, queue: str) -> dict[str, int]:
        seen = [self.seen(job) for job in self.jobs if job.new.queue == queue]
        return {str(state): seen.count(state) for state in JobState}

    def running(self, key: Key, *, live: bool = False) -> int:
        """Leases under a key; those that are over count until a claim takes them back, but not for those who look."""
        holders: list[Any] = [*(job for job in self.jobs if job.state is ACTIVE), *self.permits]
        if live:
            holders = [holder for holder in holders if holder.lease_until > self.now]
        return sum(1 for holder in holders if any(held == key for held, _ in holder.keys))

    def met_by(self, queue: str, task: str) -> list[Limit]:
        return [self.limits[name] for name in sorted(self.limits) if self.limits[name].meets(queue, task)]

    def keys_of(self, job: ModelJob) -> list[tuple[Key, int]]:
        """The keys a job is charged to, and what it takes from each."""
        new = job.new
        met = [limit for limit in self.met_by(new.queue, new.task) if limit.by is None or new.group is not None]
        return [(limit.key(new.group), cost_under(new.cost, limit.name)) for limit in met]

    def kind_of(self, key: Key) -> Kind:
        """The operator's word about the group, then about the limit, then what was declared."""
        name, group = key
        for wanted in (group, None):
            for override in self.overrides:
                if (override.limit, override.group) == (name, wanted):
                    return override.kind
        return self.limits[name].kind_for(group)

    def beneath(self, key: Key) -> list[Kind]:
        """What rules again when overrides end."""
        name, group = key
        said = [each.kind for each in self.overrides if each.limit == name and each.group == group]
        if group is not None:
            said += [each.kind for each in self.overrides if each.limit == name and each.group is None]
        return [*said[1:], self.limits[name].kind_for(group)] if said else []

    def key(self, key: Key) -> ModelKey:
        if key not in self.keys:
            self.keys[key] = ModelKey(self.kind_of(key))
            self.keys[key].change(self.kind_of(key), self.beneath(key), key[1])
        return self.keys[key]

    def opens_at(self, key: Key, cost: int, *, live: bool = False) -> int:
        """When a key admits a start of this cost, if nothing else happens."""
        found, running = self.key(key), self.running(key, live=live)
        return max([found.hold_until, *(part.opens_at(running, cost) for part in found.parts)])

    def opens_in_time(self, key: Key, cost: int) -> int:
        """The same as far as time decides: a slot may be free at any moment."""
        found = self.key(key)
        timed = [part for part in found.parts if not isinstance(part.kind, Concurrency)]
        return max([found.hold_until, *(part.opens_at(0, cost) for part in timed)])

    def lacks_only_room(self, key: Key, cost: int) -> bool:
        return cost > 1 and self.opens_at(key, 1) <= self.now < self.opens_at(key, cost)

    def misfit(self, job: ModelJob) -> str | None:
        """The first limit that never admits the job."""
        for (name, group), cost in self.keys_of(job):
            for part in self.key((name, group)).parts:
                if isinstance(part.kind, Rate) and cost > part.kind.max:
                    return name
        return None

    # a job's life

    def insert(self, new_jobs: Iterable[NewJob]) -> list[tuple[ModelJob, bool]]:
        """All or none. The answer names the job that has the id or the unique key, and whether it was there before."""
        answer: list[tuple[ModelJob, bool]] = []
        added: list[ModelJob] = []
        for new in new_jobs:
            known = [*self.jobs, *added]
            found = next((job for job in known if job.new.id == new.id), None) or self.unique_match(known, new)
            if found is not None:
                answer.append((found, True))
                continue
            due_at = self.now + new.delay if new.due_at is None else max(new.due_at, self.now)
            self.inserted += 1
            job = ModelJob(new, -self.inserted if new.lifo else self.inserted, self.now, due_at)
            for (name, group), cost in self.keys_of(job):
                for part in self.kind_of((name, group)).parts():
                    if isinstance(part, Rate) and cost > part.max:
                        raise NeverFits(name, cost, part.max)
            if new.group is not None and new.group_max_size is not None:
                size = sum(1 for other in known if other.state in (WAITING, DELAYED) and same_group(other.new, new))
                if size >= new.group_max_size:
                    raise GroupFull(new.group, size, new.group_max_size)
            added.append(job)
            answer.append((job, False))
        for job in added:
            self.jobs.append(job)
            self.arrive(job)
        return answer

    def unique_match(self, known: list[ModelJob], new: NewJob) -> ModelJob | None:
        """The live job of this queue that has the unique key, unless its time to be unique is over."""
        if new.unique is None:
            return None
        for job in reversed(known):
            if (job.new.queue, job.new.unique) == (new.queue, new.unique) and job.state not in ENDED:
                ttl = job.new.unique_ttl
                if ttl is None or self.now < job.created_at + ttl:
                    return job
        return None

    def arrive(self, job: ModelJob) -> None:
        job.state = DELAYED if job.due_at > self.now else WAITING
        if job.state is WAITING:
            self.file(job)

    def file(self, job: ModelJob) -> None:
        """A due job waits. A group that had none waiting joins behind everybody."""
        queue = self.queue(job.new.queue)
        group = queue.groups.setdefault(job.new.group, ModelGroup())
        if not any(same_group(other.new, job.new) for other in self.filed(job.new.queue)):
            queue.filings += 1
            group.turn, group.filed = max(group.turn, queue.virtual_time + ONE), queue.filings
        job.state, job.filed = WAITING, True

    def filed(self, queue: str) -> list[ModelJob]:
        return [job for job in self.jobs if job.filed and job.new.queue == queue]

    def claim(self, ask: Ask, finishes: Iterable[Finish] = ()) -> Answer:
        claim_id, leases = self.last_claims.get(ask.worker, ("", []))
        if ask.claim_id and ask.claim_id == claim_id:  # what came along was written the first time
            still = [(self.job(job_id), fence) for job_id, fence in leases]
            jobs = [job for job, fence in still if job is not None and job.state is ACTIVE and job.fence == fence]
            return Answer(jobs, [], replayed=True)
        lost = self.finish(finishes)
        if ask.tasks is not None:
            for name in ask.queues:
                self.know(name, ask.tasks)
        self.take_back()
        for name in ask.queues:
            due = [
                job for job in self.jobs if job.new.queue == name and job.state is DELAYED and job.due_at <= self.now
            ]
            for job in sorted(due, key=lambda job: (job.due_at, job.order)):
                self.file(job)
        started = self.serve_reserved(ask)
        waiting = list(ask.queues)
        while waiting and len(started) < ask.slots:
            for name in list(waiting):
                if len(started) == ask.slots:
                    break
                chosen = self.choose(name, ask.tasks)
                if chosen is None:
                    waiting.remove(name)
                else:
                    self.start(chosen, ask)
                    started.append(chosen)
        if started or finishes:
            self.last_claims[ask.worker] = (ask.claim_id, [(job.new.id, job.fence) for job in started])
        self.leased(started, self.now + ask.lease)
        return Answer(started, lost)

    def leased(self, holders: Iterable[ModelJob | ModelPermit], until: int) -> None:
        """Their leases end then, unless they are prolonged."""
        for holder in holders:
            holder.lease_until = until

    def know(self, queue: str, tasks: frozenset[str]) -> None:
        """Tasks that some worker cannot run no longer stand in the way of those that it can."""
        if tasks not in self.queue(queue).filters:
            self.queue(queue).filters.append(tasks)

    def take_back(self) -> None:
        """Leases whose time is over end."""
        for holder in self.ended():
            if isinstance(holder, ModelPermit):
                self.permits.remove(holder)
            else:
                self.end_run(holder, Outcome.CRASHED, error="the worker that ran it died: its lease ended")

    def ended(self) -> list[ModelJob | ModelPermit]:
        """Who holds a lease that is over: in the order in which they ended, then in which they started."""
        jobs = [job for job in self.jobs if job.state is ACTIVE and job.lease_until <= self.now]
        permits = [permit for permit in self.permits if permit.lease_until <= self.now]
        return [*sorted(jobs, key=lambda job: (job.lease_until, job.fence)), *permits]

    # choosing

    def lane(self, queue: str, job: ModelJob) -> tuple[Any, ...]:
        """What a job shares with those it waits behind: queue, group, limits, pause and who knows its task."""
        return job.new.group, self.signature(queue, job.new.task)

    def signature(self, queue: str, task: str) -> tuple[Any, ...]:
        """Tasks of one queue with the same signature form a class."""
        state = self.queue(queue)
        names = tuple(limit.name for limit in self.met_by(queue, task))
        return names, task in state.paused_tasks, tuple(task in tasks for tasks in state.filters)

    def heads(self, queue: str, tasks: frozenset[str] | None) -> list[ModelJob]:
        """The job that decides for each lane that a claim for these tasks may look at, in order of turns."""
        state, best = self.queue(queue), {}
        for job in sorted(self.filed(queue), key=lambda job: job.place):
            paused = job.new.task in state.paused_tasks or job.new.group in state.paused_groups
            if not paused and (tasks is None or job.new.task in tasks):
                best.setdefault(self.lane(queue, job), job)
        groups = state.groups
        return sorted(
            best.values(), key=lambda job: (groups[job.new.group].turn, groups[job.new.group].filed, job.place)
        )

    def choose(self, queue: str, tasks: frozenset[str] | None) -> ModelJob | None:
        """The next job of a queue that may start now."""
        if self.queue(queue).paused:
            return None
        while True:
            for job in self.heads(queue, tasks):
                if any(self.closed(key) for key, _ in self.keys_of(job)):
                    continue  # refused whatever it costs
                if self.misfit(job) is not None:
                    self.fail_misfit(job)
                    break
                refusing = [(key, cost) for key, cost in self.keys_of(job) if self.opens_at(key, cost) > self.now]
                if not refusing:
                    return job
                self.reserve(job)
            else:
                return None

    def closed(self, key: Key) -> bool:
        """No start at all is admitted now, or the room is kept for a big job."""
        return self.opens_at(key, 1) > self.now or any(kept.key == key for kept in self.reservations)

    def reserve(self, job: ModelJob) -> None:
        """Keep the room free wherever it lacks room, for one window at most: by then it fits."""
        for key, cost in self.keys_of(job):
            if self.opens_at(key, cost) > self.now and not any(kept.key == key for kept in self.reservations):
                self.reservations.append(ModelReservation(key, job, self.now + self.window(key)))

    def window(self, key: Key) -> int:
        return max(part.kind.window for part in self.key(key).parts if isinstance(part.kind, Rate))

    def start(self, job: ModelJob, ask: Ask) -> None:
        queue = self.queue(job.new.queue)
        group = queue.groups[job.new.group]
        queue.virtual_time = max(queue.virtual_time, group.turn)
        queue.filings += 1
        weight = job.new.cost if isinstance(job.new.cost, int) else 1
        group.turn, group.filed = max(group.turn, queue.virtual_time) + weight * ONE, queue.filings
        job.keys = self.keys_of(job)
        self.charge(job.keys)
        self.reservations = [kept for kept in self.reservations if kept.holder is not job]
        job.state, job.filed = ACTIVE, False
        job.attempts_made += 1
        self.fences += 1
        job.fence = self.fences
        job.worker, job.started_at = ask.worker, self.now
        self.log.append((job.new.queue, job.new.id, self.now))

    def charge(self, keys: Iterable[tuple[Key, int]]) -> None:
        for key, cost in keys:
            for part in self.key(key).kept:
                part.start(0, cost, self.now)

    def fail_misfit(self, job: ModelJob) -> None:
        job.error = f"NeverFits: {self.misfit(job)}"
        self.end(job, FAILED)

    # big jobs

    def still_reserves(self, kept: ModelReservation) -> bool:
        """A reservation lasts one window at most, while its job is next in its lane and only its size is in the way."""
        job = kept.holder
        if isinstance(job, str):
            return self.now < kept.deadline
        queue = self.queue(job.new.queue)
        if not job.filed or self.now >= kept.deadline or self.misfit(job) is not None:
            return False
        if queue.paused or job.new.task in queue.paused_tasks or job.new.group in queue.paused_groups:
            return False
        lane = self.lane(job.new.queue, job)
        if any(
            other.place < job.place for other in self.filed(job.new.queue) if self.lane(job.new.queue, other) == lane
        ):
            return False
        return all(
            self.opens_at(key, cost) <= self.now or self.lacks_only_room(key, cost) for key, cost in self.keys_of(job)
        )

    def serve_reserved(self, ask: Ask) -> list[ModelJob]:
        """Jobs that room is kept for go first; reservations that no longer hold are given up."""
        started: list[ModelJob] = []
        for kept in list(self.reservations):
            if kept not in self.reservations:
                continue
            if not self.still_reserves(kept):
                self.reservations.remove(kept)
                continue
            job = kept.holder
            if isinstance(job, str):
                continue
            self.reserve(job)
            asked = job.new.queue in ask.queues and (ask.tasks is None or job.new.task in ask.tasks)
            if asked and len(started) < ask.slots and self.may_start_reserved(job):
                self.start(job, ask)
                started.append(job)
        return started

    def may_start_reserved(self, job: ModelJob) -> bool:
        others = [kept.key for kept in self.reservations if kept.holder is not job]
        return all(self.opens_at(key, cost) <= self.now and key not in others for key, cost in self.keys_of(job))

    # ends of runs

    def finish(self, finishes: Iterable[Finish]) -> list[str]:
        lost: list[str] = []
        for end in finishes:
            job = self.job(end.id)
            if job is None or job.state is not ACTIVE or job.fence != end.fence:
                lost.append(end.id)
                continue
            self.hold(end.holds, job.started_at)
            due_at = self.now + end.after if end.at is None else end.at
            if end.when_open and end.at is None:
                opens = [self.opens_in_time(key, cost) for key, cost in job.keys]
                due_at = max([self.now, *(at for at in opens if at < NEVER)])
            self.end_run(job, end.outcome, due_at=due_at, result=end.result, error=end.error)
        return lost

    def end_run(
        self, job: ModelJob, outcome: Outcome, *, due_at: int = 0, result: bytes | None = None, error: str | None = None
    ) -> None:
        if outcome is Outcome.COMPLETED:
            self.succeeded(job.keys, job.started_at or 0)
        job.keys, job.worker = [], None
        job.error = job.error if error is None else error
        if job.cancel_asked or outcome is Outcome.CANCELLED:
            self.end(job, CANCELLED)
        elif outcome is Outcome.COMPLETED:
            job.result, job.error = result, None
            self.end(job, COMPLETED)
        elif outcome is Outcome.FAILED:
            self.end(job, FAILED)
        else:
            job.attempts_made -= outcome is not Outcome.RETRY
            job.returns += outcome is Outcome.RETURNED
            job.crashes += outcome is Outcome.CRASHED
            if outcome is Outcome.CRASHED and job.crashes >= LIVES:
                job.error = "crashed"
                self.end(job, FAILED)
            else:
                job.due_at = max(due_at, self.now) if outcome is Outcome.RETRY else self.now
                self.arrive(job)

    def end(self, job: ModelJob, state: JobState) -> None:
        job.state, job.filed, job.finished_at = state, False, self.now
        if job.new.keep == 0:
            self.jobs.remove(job)

    def extend(self, leases: Iterable[Lease], lease: int) -> tuple[list[str], list[str]]:
        lost: list[str] = []
        cancel: list[str] = []
        prolonged: list[Any] = []
        for held in leases:
            job = self.job(held.id)
            holder: Any = job or next((permit for permit in self.permits if permit.id == held.id), None)
            if holder is None or (job is not None and (job.state is not ACTIVE or job.fence != held.fence)):
                lost.append(held.id)
                continue
            prolonged.append(holder)
            if job is not None and job.cancel_asked:
                cancel.append(held.id)
        self.leased(prolonged, self.now + lease)
        return lost, cancel

    # what operators do

    def move(self, ids: Iterable[str], move: Move) -> None:
        jobs: list[ModelJob] = []
        for job_id in dict.fromkeys(ids):
            job = self.job(job_id)
            if job is None:
                raise JobNotFound(job_id)
            jobs.append(job)
        for job in jobs:
            if self.seen(job) not in MOVES[move]:
                raise MoveNotAllowed(job.new.id, self.seen(job), move)
        if move is Move.RETRY:
            self.refuse_second_lives(jobs)
        for job in jobs:
            self.reservations = [kept for kept in self.reservations if kept.holder is not job]
            if move is Move.REMOVE:
                self.jobs.remove(job)
                job.filed = False
            elif move is Move.CANCEL and job.state is ACTIVE:
                job.cancel_asked = True
            elif move is Move.CANCEL:
                self.end(job, CANCELLED)
            else:
                if move is Move.RETRY:
                    job.attempts_made = job.crashes = job.returns = 0
                    job.started_at = job.finished_at = job.result = job.error = None
                    job.cancel_asked = False
                job.due_at = self.now
                self.arrive(job)

    def refuse_second_lives(self, jobs: list[ModelJob]) -> None:
        """Of a unique key there is one live job: not another one, nor one of the same move."""
        for place, job in enumerate(jobs):
            key = job.new.queue, job.new.unique
            rivals = [other for other in jobs[:place] if (other.new.queue, other.new.unique) == key]
            holder = self.unique_match([*self.jobs], job.new) or next(iter(rivals), None)
            if job.new.unique is not None and holder is not None:
                raise MoveNotAllowed(job.new.id, self.seen(job), Move.RETRY, holder.new.id)

    def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        state = self.queue(queue)
        if task is None and group is None:
            state.paused = paused
        if task is not None:
            (state.paused_tasks.add if paused else state.paused_tasks.discard)(task)
        if group is not None:
            (state.paused_groups.add if paused else state.paused_groups.discard)(group)

    # limits

    def set_limits(self, limits: Iterable[Limit]) -> list[str]:
        """Returns the names of the limits whose numbers were replaced."""
        limits = list(limits)
        for limit in limits:
            old = self.limits.get(limit.name)
            if old is not None and old.scope != limit.scope:
                raise ConfigError(f"limit {limit.name!r} has another scope")
        changed = [limit.name for limit in limits if limit.name in self.limits and limit != self.limits[limit.name]]
        for limit in limits:
            self.limits[limit.name] = limit
        self.renew()
        return changed

    def renew(self) -> None:
        """Every key goes on under the numbers that hold now; other numbers end a reservation."""
        for key, found in self.keys.items():
            kind, beneath = self.kind_of(key), self.beneath(key)
            changed = kind != found.kind
            if changed or beneath:
                found.change(kind, beneath, key[1])
            if changed:
                self.reservations = [kept for kept in self.reservations if kept.key != key]

    def drop_limit(self, name: str) -> None:
        """Forget a limit with all that was counted under it; what runs is counted nowhere any more."""
        del self.limits[name]
        self.overrides = [override for override in self.overrides if override.limit != name]
        self.reservations = [kept for kept in self.reservations if kept.key[0] != name]
        self.keys = {key: found for key, found in self.keys.items() if key[0] != name}
        for holder in [*self.jobs, *self.permits]:
            holder.keys = [(key, cost) for key, cost in holder.keys if key[0] != name]

    def prune(self) -> None:
        """Finished jobs go after their time, and counters of groups that decide like new ones."""
        over = [job for job in self.jobs if job.state in ENDED and job.new.keep is not None]
        for job in over:
            if self.now - (job.finished_at or 0) > (job.new.keep or 0):
                self.jobs.remove(job)
        awaited = {key for job in self.jobs if job.filed for key, _ in self.keys_of(job)}
        awaited |= {kept.key for kept in self.reservations}
        for key, found in list(self.keys.items()):
            if key[1] is not None and key not in awaited and not self.running(key) and found.idle(self.now):
                del self.keys[key]

    def override(self, override: Override) -> None:
        self.overrides = [
            other for other in self.overrides if (other.limit, other.group) != (override.limit, override.group)
        ]
        self.overrides.append(override)
        self.renew()

    def lift(self, limit: str, group: str | None) -> None:
        self.overrides = [other for other in self.overrides if (other.limit, other.group) != (limit, group)]
        self.renew()

    def expire(self) -> None:
        """Overrides whose time is over end; called whenever time has passed."""
        for override in list(self.overrides):
            if override.expires_at is not None and override.expires_at <= self.now:
                self.lift(override.limit, override.group)

    def hold(self, holds: Iterable[Hold], started_at: int | None = None) -> None:
        """Holds only grow. A refusal of a job that ran before the last one is the same refusal, heard once more."""
        for hold in holds:
            limit = self.limits[hold.limit]
            found = self.key(limit.key(hold.group))
            if hold.until is not None:
                found.hold(hold.until, self.now)
            elif hold.for_ is not None:
                found.hold(self.now + hold.for_, self.now)
            elif started_at is None or not found.refusals or started_at > found.held_at:
                found.refusals += 1
                found.hold(self.now + held_for(limit.backoff or Backoff(), found.refusals, hold.jitter), self.now)

    def release(self, limit: str, group: str | None) -> None:
        for (name, other), found in self.keys.items():
            if name == limit and group in (None, other):
                found.hold_until = found.refusals = 0

    def succeeded(self, keys: Iterable[tuple[Key, int]], started_at: int) -> None:
        for key, _ in keys:
            if started_at > self.key(key).held_at:
                self.key(key).refusals = 0

    def clear(self, limit: str, group: str | None) -> None:
        """Forget starts, hold and reservation of one key; leases stay."""
        self.keys.pop((limit, group), None)
        self.reservations = [kept for kept in self.reservations if kept.key != (limit, group)]

    def acquire(self, targets: Iterable[Target], permit: str, lease: int, force: bool, waits: bool) -> int:
        """0 when granted, else the instant until which it is refused."""
        self.take_back()
        keys = [((target.limit, target.group), target.cost) for target in targets]
        for key, cost in keys:
            for part in self.key(key).parts:
                if isinstance(part.kind, Rate) and cost > part.kind.max:
                    raise NeverFits(key[0], cost, part.kind.max)
        until = max(self.opens_at(key, cost) for key, cost in keys)
        for kept in self.reservations:
            if any(kept.key == key for key, _ in keys) and kept.holder != permit and self.now < kept.deadline:
                until = max(until, self.now + 1)
        if until > self.now and not force:
            if waits:
                self.reserve_for_permit(keys, permit)
            ends = [job.lease_until for job in self.jobs if job.state is ACTIVE]
            return until if until < NEVER else min([NEVER, *ends, *(held.lease_until for held in self.permits)])
        self.reservations = [kept for kept in self.reservations if kept.holder != permit]
        self.charge(keys)
        if any(isinstance(part.kind, Concurrency) for key, _ in keys for part in self.key(key).parts):
            self.permits.append(ModelPermit(permit, keys, self.now))
            self.leased(self.permits[-1:], self.now + lease)
        return 0

    def reserve_for_permit(self, keys: list[tuple[Key, int]], permit: str) -> None:
        """Somebody waits for a big permit: the room is kept for it if nothing but windows refuses it."""
        refusing = [(key, cost) for key, cost in keys if self.opens_at(key, cost) > self.now]
        taken = {kept.key for kept in self.reservations if kept.holder != permit}
        if all(cost > 1 and key not in taken and self.only_windows_refuse(key) for key, cost in refusing):
            mine = {kept.key for kept in self.reservations}
            for key, _ in refusing:
                if key not in mine:
                    self.reservations.append(ModelReservation(key, permit, self.now + self.window(key)))

    def only_windows_refuse(self, key: Key) -> bool:
        found, running = self.key(key), self.running(key)
        others = [part.opens_at(running, 1) for part in found.parts if not isinstance(part.kind, Rate)]
        return max([found.hold_until, *others]) <= self.now

    def give_back(self, permit_id: str) -> None:
        self.reservations = [kept for kept in self.reservations if kept.holder != permit_id]
        for permit in list(self.permits):
            if permit.id == permit_id:
                self.permits.remove(permit)
                self.succeeded(permit.keys, permit.started_at)

    # when to ask again

    def next_start(self, ask: Ask) -> int:
        """The earliest instant from now on at which a claim like this one could start something, by time alone."""
        ends = [job.lease_until for job in self.jobs if job.state is ACTIVE]
        ends += [permit.lease_until for permit in self.permits]
        ends += [override.expires_at for override in self.overrides if override.expires_at is not None]
        return max(self.now, min([NEVER, *ends, *(at for name in ask.queues for at in self.instants(name, ask.tasks))]))

    def instants(self, queue: str, tasks: frozenset[str] | None) -> Iterator[int]:
        """When each head of a queue could start, and when each delayed job is due."""
        state = self.queue(queue)
        if state.paused:
            return
        for job in self.jobs:
            paused = job.new.task in state.paused_tasks or job.new.group in state.paused_groups
            if (
                job.new.queue == queue
                and job.state is DELAYED
                and not paused
                and (tasks is None or job.new.task in tasks)
            ):
                yield job.due_at
        for job in self.heads(queue, tasks):
            keys = self.keys_of(job)
            if self.misfit(job) is None:
                others = [
                    kept.deadline
                    for kept in self.reservations
                    if kept.holder is not job and any(kept.key == key for key, _ in keys)
                ]
                yield max([self.now, *others, *(self.opens_at(key, cost) for key, cost in keys)])


def cost_under(cost: Any, limit: str) -> int:
    return cost if isinstance(cost, int) else cost.get(limit, 1)


def same_group(one: NewJob, other: NewJob) -> bool:
    return (one.queue, one.group) == (other.queue, other.group)


def held_for(backoff: Backoff, refusals: int, jitter: float) -> int:
    """d + uniform(0, d), d = initial · multiplier^(k-1) up to the maximum."""
    delay = min(int(backoff.initial_us * backoff.multiplier ** (refusals - 1)), backoff.maximum_us)
    return delay + int(delay * jitter)
