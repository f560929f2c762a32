"""Every store and the plain model, driven together: the same operations at the same times, the same decisions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from paceline.errors import PacelineError
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, Kind, Limit, Rate, Unlimited
from paceline.stores import open_store
from paceline.stores.interface import Ask, Claim, Finish, Hold, Lease, Outcome, Override, Store, Target, Usage

from ..clocks import HandClock
from ..servers.fresh import fresh_postgres
from ..servers.redis import empty_redis
from .files import OwnFile
from .histories import HISTORIES, History
from .model import NEVER, Key, Model, ModelJob

START = 1_000_000
EXAMPLES = int(os.environ.get("PACELINE_MODEL_EXAMPLES", "150"))
OPENERS: dict[str, Callable[[Any], Any]] = {
    "memory": lambda clock: open_store("memory://", clock=clock),
    "sqlite": OwnFile,
    "sqlite, two handles": partial(OwnFile, handles=2),
    "postgres": lambda clock: fresh_postgres(clock)("default"),
    "redis": lambda clock: open_store(empty_redis(), clock=clock),
}
"""A further store is one line here: a function of a clock that gives a new, empty store."""

QUEUES = ("q", "r")
TASKS = ("a", "b", "c")
GROUPS = (None, "x", "y", "z")
LEASES = (12, 25, 60, 10_000)

SCOPES: dict[str, dict[str, Any]] = {
    "all": {},
    "ab": {"tasks": ["a", "b"]},
    "b in q": {"tasks": ["b"], "queues": ["q"]},
    "r": {"queues": ["r"]},
    "tenant": {"by": "group"},
    "tenant a": {"by": "group", "tasks": ["a"]},
}
"""The limits that may be declared; a name has one scope for ever, only its numbers change."""


# what may happen

steps = st.sampled_from([0, 1, 1, 2, 4, 5, 6, 9, 10, 11, 12, 13, 19, 20, 21, 24, 25, 26, 59, 60, 61, 200])
"""Microseconds, mostly around the ends of windows (5, 10, 20) and leases (12, 25, 60)."""

rates = st.builds(lambda most, per: Rate(most, f"{per}us"), st.integers(1, 4), st.sampled_from([5, 10, 20]))
spacings = st.builds(lambda most, per: EvenlySpaced(most, f"{per}us"), st.integers(1, 5), st.sampled_from([5, 10, 20]))
delays = st.sampled_from([Delay("1us"), Delay("5us"), Delay("10us")])
running = st.builds(Concurrency, st.integers(1, 3))
kinds: st.SearchStrategy[Kind] = st.one_of(
    rates,
    rates,
    running,
    delays,
    spacings,
    st.builds(AllOf, rates, running),
    st.builds(AllOf, running, rates),
    st.builds(AllOf, rates, rates),
    st.builds(AllOf, delays, running),
    st.builds(AllOf, running, spacings),
    st.just(Unlimited()),
)
backoffs = st.none() | st.just(Backoff("2us", 2, "16us"))
limits = st.builds(
    lambda name, kind, backoff: Limit(name, kind, backoff=backoff, **SCOPES[name]),
    st.sampled_from(list(SCOPES)),
    kinds,
    backoffs,
)
costs = st.one_of(st.just(1), st.just(1), st.integers(1, 4), st.sampled_from([{"all": 2}, {"tenant": 3}]))
required = {
    "queue": st.sampled_from(QUEUES),
    "task": st.sampled_from(TASKS),
    "group": st.sampled_from(GROUPS),
    "cost": costs,
}
plain_specs = st.fixed_dictionaries(required)
specs = st.fixed_dictionaries(
    required,
    optional={
        "priority": st.integers(-1, 1),
        "lifo": st.booleans(),
        "delay": st.sampled_from([1, 5, 10, 30]),
        "group_max_size": st.integers(1, 4),
        "unique": st.sampled_from(["one", "two"]),
        "unique_ttl": st.sampled_from([5, 20]),
        "keep": st.sampled_from([0, 5]),
    },
)
picks = st.integers(0, 40)
some_tasks = st.none() | st.sampled_from([frozenset("a"), frozenset("ab"), frozenset("abc"), frozenset("c")])
queue_lists = st.sampled_from([("q",), ("r",), ("q", "r"), ("r", "q")])
workers = st.sampled_from(["w1", "w2"])


class Together(RuleBasedStateMachine):
    """The model on the left, a store on the right."""

    open: Callable[[Any], Store]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = HandClock(START)
        self.store = type(self).open(self.clock)
        self.run(self.store.open())
        self.model = Model(START)
        self.ids: list[str] = []
        self.leases: list[tuple[str, int]] = []
        self.claims = 0
        self.last_ask: Ask | None = None
        self.permits: list[str] = []
        self.awaited: dict[str, list[Target]] = {}
        self.starts = StartLog()

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(awaitable)

    def both(self, on_model: Callable[[], Any], on_store: Awaitable[Any]) -> tuple[Any, Any]:
        """The answers of both; errors must be of one type."""
        answers: list[Any] = []
        for call in (on_model, lambda: self.run(on_store)):
            try:
                answers.append(call())
            except PacelineError as error:
                answers.append(error)
        failed = [type(answer) if isinstance(answer, PacelineError) else None for answer in answers]
        assert failed[0] is failed[1], f"model: {answers[0]!r}, store: {answers[1]!r}"
        return answers[0], answers[1]

    # the life of jobs

    @initialize(declared=st.lists(limits, max_size=3))
    def begin(self, declared: list[Limit]) -> None:
        self.declare(declared)

    @rule(wanted=st.lists(st.tuples(specs, st.booleans(), picks), min_size=1, max_size=4))
    def insert(self, wanted: list[tuple[dict[str, Any], bool, int]]) -> None:
        jobs = []
        for spec, again, pick in wanted:
            fresh = not self.ids or not (again and pick < 10)
            job_id = f"j{len(self.ids)}" if fresh else self.ids[pick % len(self.ids)]
            if fresh:
                self.ids.append(job_id)
            jobs.append(NewJob(id=job_id, attempts=3, **spec))
        expected, got = self.both(lambda: self.model.insert(jobs), self.store.insert(jobs))
        if not isinstance(got, PacelineError):
            assert [(job.new.id, existed) for job, existed in expected] == [(one.job.id, one.existed) for one in got]

    @rule(queues=queue_lists, slots=st.integers(1, 4), tasks=some_tasks, worker=workers, lease=st.sampled_from(LEASES))
    def claim(self, queues: tuple[str, ...], slots: int, tasks: frozenset[str] | None, worker: str, lease: int) -> None:
        self.claims += 1
        ask = Ask(queues=queues, slots=slots, worker=worker, lease=lease, claim_id=f"c{self.claims}", tasks=tasks)
        self.ask(ask, [])

    @rule(wanted=st.lists(plain_specs, min_size=1, max_size=4))
    def insert_plain_jobs(self, wanted: list[dict[str, Any]]) -> None:
        self.insert([(spec, False, 0) for spec in wanted])

    @rule(queues=queue_lists, slots=st.integers(1, 4))
    def claim_anything(self, queues: tuple[str, ...], slots: int) -> None:
        self.claim(queues, slots, None, "w1", 10_000)

    @precondition(lambda self: self.leases)
    @rule(picks=st.lists(picks, min_size=1, max_size=3), outcome=st.sampled_from(Outcome), slots=st.integers(1, 3))
    def claim_and_finish(self, picks: list[int], outcome: Outcome, slots: int) -> None:
        self.claims += 1
        ask = Ask(queues=("q", "r"), slots=slots, worker="w1", lease=25, claim_id=f"c{self.claims}")
        self.ask(ask, [self.ending(pick, outcome) for pick in picks])

    @precondition(lambda self: self.last_ask is not None)
    @rule()
    def claim_again_because_the_answer_was_lost(self) -> None:
        assert self.last_ask is not None
        self.ask(self.last_ask, [])

    @precondition(lambda self: self.leases)
    @rule(
        pick=picks,
        outcome=st.sampled_from(Outcome),
        after=st.sampled_from([0, 5, 10]),
        when_open=st.booleans(),
        stale=st.integers(0, 9),
    )
    def finish(self, pick: int, outcome: Outcome, after: int, when_open: bool, stale: int) -> None:
        end = self.ending(pick, outcome, after=after, when_open=when_open, wrong_fence=stale == 0)
        self.end_runs([end])

    @precondition(lambda self: self.leases)
    @rule(picks=st.lists(picks, min_size=1, max_size=4))
    def complete_several(self, picks: list[int]) -> None:
        self.end_runs([self.ending(pick, Outcome.COMPLETED) for pick in picks])

    @precondition(lambda self: self.leases and self.model.limits)
    @rule(
        pick=picks,
        which=picks,
        group=st.sampled_from("xy"),
        for_=st.sampled_from([None, 5, 10]),
        jitter=st.sampled_from([0.0, 0.5]),
    )
    def be_refused_from_outside(self, pick: int, which: int, group: str, for_: int | None, jitter: float) -> None:
        name, of_group = self.some_key(which, group)
        hold = Hold(limit=name, group=of_group, for_=for_, jitter=jitter)
        self.end_runs([self.ending(pick, Outcome.RETURNED, holds=(hold,))])

    @precondition(lambda self: self.leases or self.permits)
    @rule(picks=st.lists(picks, min_size=1, max_size=3), permit=st.booleans(), lease=st.sampled_from(LEASES))
    def extend(self, picks: list[int], permit: bool, lease: int) -> None:
        held = [Lease(*self.leases[-1 - pick % len(self.leases)]) for pick in picks if self.leases]
        if permit and self.permits:
            held.append(Lease(self.permits[picks[0] % len(self.permits)], 0))
        expected, got = self.both(lambda: self.model.extend(held, lease), self.store.extend("w1", held, lease))
        assert expected == (got.lost, got.cancel)

    @precondition(lambda self: self.ids)
    @rule(picks=st.lists(picks, min_size=1, max_size=2), move=st.sampled_from(Move))
    def move(self, picks: list[int], move: Move) -> None:
        ids = [self.ids[-1 - pick % len(self.ids)] for pick in picks]
        self.both(lambda: self.model.move(ids, move), self.store.move(ids, move))

    @rule(
        queue=st.sampled_from(QUEUES),
        task=st.sampled_from((None, *TASKS)),
        group=st.sampled_from(GROUPS[:3]),
        paused=st.booleans(),
    )
    def pause(self, queue: str, task: str | None, group: str | None, paused: bool) -> None:
        if paused and task is None and group is None:
            paused = False  # a paused queue hides everything: `pause_queue` does it, rarely
        self.both(lambda: self.model.pause(queue, task, group, paused), self.store.pause(queue, task, group, paused))

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def pause_queue(self, queue: str, paused: bool) -> None:
        self.both(lambda: self.model.pause(queue, None, None, paused), self.store.pause(queue, None, None, paused))

    @rule()
    def prune(self) -> None:
        self.both(self.model.prune, self.store.prune())

    # limits

    @rule(declared=st.lists(limits, min_size=1, max_size=2))
    def declare(self, declared: list[Limit]) -> None:
        if len({limit.name for limit in declared}) == len(declared):
            expected, got = self.both(lambda: self.model.set_limits(declared), self.store.set_limits(declared))
            assert expected == [change.new.name for change in got]

    @precondition(lambda self: self.model.limits)
    @rule(pick=picks, kind=kinds)
    def declare_other_numbers(self, pick: int, kind: Kind) -> None:
        name = sorted(self.model.limits)[pick % len(self.model.limits)]
        self.declare([Limit(name, kind, **SCOPES[name])])

    @precondition(lambda self: self.model.limits)
    @rule(pick=picks)
    def declare_another_scope(self, pick: int) -> None:
        name = sorted(self.model.limits)[pick % len(self.model.limits)]
        other = Limit(name, Concurrency(1), queues=["elsewhere"])
        self.both(lambda: self.model.set_limits([other]), self.store.set_limits([other]))

    @precondition(lambda self: len(self.model.limits) > 2)
    @rule(pick=picks)
    def drop_a_limit(self, pick: int) -> None:
        name = sorted(self.model.limits)[pick % len(self.model.limits)]
        self.both(lambda: self.model.drop_limit(name), self.store.drop_limit(name))
        self.starts.drop(name)

    @precondition(lambda self: self.model.limits)
    @rule(pick=picks, kind=kinds, group=st.sampled_from([None, "x", "y"]), for_=st.sampled_from([None, 5, 20]))
    def override(self, pick: int, kind: Kind, group: str | None, for_: int | None) -> None:
        name = sorted(self.model.limits)[pick % len(self.model.limits)]
        group = group if self.model.limits[name].by else None
        said = Override(limit=name, kind=kind, group=group)
        until = Override(limit=name, kind=kind, group=group, expires_at=None if for_ is None else self.clock.at + for_)
        self.both(lambda: self.model.override(until), self.store.override(said, for_))

    @precondition(lambda self: self.model.overrides)
    @rule(pick=picks)
    def lift(self, pick: int) -> None:
        found = self.model.overrides[pick % len(self.model.overrides)]
        self.both(lambda: self.model.lift(found.limit, found.group), self.store.lift(found.limit, found.group))

    @precondition(lambda self: self.model.limits)
    @rule(pick=picks, group=st.sampled_from("xy"), until=st.sampled_from([-1, 0, 1, 5, 10, 20]), absolute=st.booleans())
    def hold(self, pick: int, group: str, until: int, absolute: bool) -> None:
        name, of_group = self.some_key(pick, group)
        time = {"until": self.clock.at + until} if absolute else {"for_": max(until, 0)}
        hold = Hold(limit=name, group=of_group, **time)
        self.both(lambda: self.model.hold([hold]), self.store.hold([hold]))

    @precondition(lambda self: self.model.limits)
    @rule(pick=picks, group=st.sampled_from([None, "x", "y"]), forget=st.booleans())
    def release_or_clear(self, pick: int, group: str | None, forget: bool) -> None:
        name, of_group = self.some_key(pick, group or "x")
        if forget:
            self.both(lambda: self.model.clear(name, of_group), self.store.clear(name, of_group))
            self.starts.forget((name, of_group))
        else:
            of_group = group if self.model.limits[name].by else None
            self.both(lambda: self.model.release(name, of_group), self.store.release(name, of_group))

    @precondition(lambda self: self.model.limits)
    @rule(
        wanted=st.lists(st.tuples(picks, st.sampled_from("xy"), st.integers(1, 3)), min_size=1, max_size=2),
        lease=st.sampled_from(LEASES),
        how=st.sampled_from(["now or never", "now or never", "waits", "waits", "forced"]),
    )
    def acquire(self, wanted: list[tuple[int, str, int]], lease: int, how: str) -> None:
        targets = [Target(*self.some_key(pick, group), cost) for pick, group, cost in wanted]
        if len({target.limit for target in targets}) == len(targets):
            self.permits.append(f"p{len(self.permits)}")
            self.ask_for_permit(targets, self.permits[-1], lease, force=how == "forced", waits=how == "waits")

    @precondition(lambda self: self.awaited)
    @rule(pick=picks)
    def ask_again_for_a_permit(self, pick: int) -> None:
        permit = sorted(self.awaited)[pick % len(self.awaited)]
        targets = self.awaited.pop(permit)
        if all(target.limit in self.model.limits for target in targets):
            self.ask_for_permit(targets, permit, 25, force=False, waits=True)

    def ask_for_permit(self, targets: list[Target], permit: str, lease: int, force: bool, waits: bool) -> None:
        until, grant = self.both(
            lambda: self.model.acquire(targets, permit, lease, force, waits),
            self.store.acquire(targets, permit, lease, force, waits),
        )
        if isinstance(grant, PacelineError):
            return
        assert grant.granted == (until == 0)
        assert grant.now == self.clock.at
        if grant.granted:
            assert grant.leased == any(held.id == permit for held in self.model.permits)
            self.starts.add(self.model, [((target.limit, target.group), target.cost) for target in targets], force)
            return
        if waits:
            self.awaited[permit] = targets
        reserved = any(kept.key[0] in {target.limit for target in targets} for kept in self.model.reservations)
        assert grant.until > grant.now
        assert reserved or grant.until == until

    @precondition(lambda self: self.permits)
    @rule(pick=picks)
    def give_back(self, pick: int) -> None:
        permit = self.permits[-1 - pick % len(self.permits)]
        self.both(lambda: self.model.give_back(permit), self.store.give_back([permit]))

    # time

    @rule(by=steps)
    def time_passes(self, by: int) -> None:
        self.clock.at += by
        self.model.now = self.clock.at
        self.model.expire()
        held = {(found.limit, found.group, found.kind, found.expires_at) for found in self.run(self.store.overrides())}
        assert held == {(found.limit, found.group, found.kind, found.expires_at) for found in self.model.overrides}

    @precondition(lambda self: self.last_ask is not None)
    @rule(early=st.integers(0, 1))
    def time_passes_until_something_opens(self, early: int) -> None:
        """Go to the exact instant at which a job could start, or to the microsecond before it."""
        at = self.model.next_start(Ask(queues=QUEUES, slots=1, worker="w1", lease=1))
        if self.clock.at < at < NEVER:
            self.time_passes(at - self.clock.at - early)

    # helpers

    def some_key(self, pick: int, group: str) -> Key:
        name = sorted(self.model.limits)[pick % len(self.model.limits)]
        return name, group if self.model.limits[name].by else None

    def ending(self, pick: int, outcome: Outcome, wrong_fence: bool = False, **more: Any) -> Finish:
        job_id, fence = self.leases[-1 - pick % len(self.leases)]
        error = "broken" if outcome is Outcome.FAILED else None
        return Finish(id=job_id, fence=fence + wrong_fence, outcome=outcome, result=b"1", error=error, **more)

    def end_runs(self, ends: list[Finish]) -> None:
        expected, got = self.both(lambda: self.model.finish(ends), self.store.finish(ends))
        assert expected == got

    def ask(self, ask: Ask, finishes: list[Finish]) -> None:
        expected, got = self.both(lambda: self.model.claim(ask, finishes), self.store.claim(ask, finishes))
        assert isinstance(got, Claim)
        self.last_ask = ask
        assert [job.new.id for job in expected.jobs] == [job.id for job in got.jobs]
        assert expected.lost == got.lost
        assert got.now == self.clock.at
        for job, record in zip(expected.jobs, got.jobs, strict=True):
            assert picture_of(self.model, job) == picture(record)
        if expected.replayed:
            assert got.ask_again_at == got.now
            return
        for job in expected.jobs:
            self.leases.append((job.new.id, job.fence))
            self.starts.add(self.model, job.keys, forced=False)
        exact = self.model.next_start(ask)
        assert got.now <= got.ask_again_at <= exact
        if exact > got.now and len(got.jobs) < ask.slots:
            assert got.ask_again_at > got.now

    # what must hold after every step

    @invariant()
    def changed_numbers_are_noticed(self) -> None:
        self.starts.notice_changes(self.model)

    @invariant()
    def everything_that_can_be_read_is_the_same(self) -> None:
        self.run(self.compare())

    async def compare(self) -> None:
        expected = {job.new.id: picture_of(self.model, job) for job in self.model.jobs}
        assert {record.id: picture(record) for record in await self.store.get(self.ids)} == expected
        for queue in QUEUES:
            assert await self.store.counts(queue) == self.model.counts(queue)
            started = [(queue, start.job_id, start.at) for start in await self.store.starts(queue, None)]
            assert started == [entry for entry in self.model.log if entry[0] == queue]
        for name, limit in self.model.limits.items():
            for group in ("x", "y") if limit.by else (None,):
                compare_usage(self.model, (name, group), await self.store.usage(name, group))


class StartLog:
    """Every start under every key as the store reported it, checked by brute force against the numbers of the key."""

    def __init__(self) -> None:
        self.entries: list[tuple[Key, int, int]] = []
        self.kinds: dict[Key, Kind] = {}

    def forget(self, key: Key) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key]

    def drop(self, name: str) -> None:
        self.entries = [entry for entry in self.entries if entry[0][0] != name]
        self.kinds = {key: kind for key, kind in self.kinds.items() if key[0] != name}

    def notice_changes(self, model: Model) -> None:
        """Numbers that were changed are held to from the change on."""
        for key, kind in list(self.kinds.items()):
            if model.kind_of(key) != kind:
                self.kinds[key] = model.kind_of(key)
                self.forget(key)

    def add(self, model: Model, keys: list[tuple[Key, int]], forced: bool) -> None:
        for key, cost in keys:
            kind = self.kinds.setdefault(key, model.kind_of(key))
            earlier = [(at, spent) for other, at, spent in self.entries if other == key]
            for part in () if forced else kind.parts():
                self.check(part, earlier, cost, model.now)
                if isinstance(part, Concurrency):
                    assert model.running(key) <= part.max
            self.entries.append((key, model.now, cost))

    def check(self, part: Any, earlier: list[tuple[int, int]], cost: int, now: int) -> None:
        if isinstance(part, Rate):
            assert sum(spent for at, spent in earlier if at > now - part.window) + cost <= part.max
        elif isinstance(part, Delay):
            assert all(now - at >= part.gap_us for at, _ in earlier)
        elif isinstance(part, EvenlySpaced):
            assert all(now - at >= spent * part.per_us // part.max for at, spent in earlier)


# how answers are compared


def picture(record: JobRecord) -> dict[str, Any]:
    """What two stores must agree on about one job."""
    return {
        **{name: getattr(record, name) for name in ("queue", "task", "group", "state", "priority", "attempts_made")},
        **{name: getattr(record, name) for name in ("crashes", "returns", "fence", "worker", "cancel_asked", "result")},
        **{name: getattr(record, name) for name in ("created_at", "due_at", "started_at", "finished_at")},
        "error": error_word(record.error),
        "lifo": record.order < 0,
    }


def picture_of(model: Model, job: ModelJob) -> dict[str, Any]:
    return {
        **{name: getattr(job.new, name) for name in ("queue", "task", "group", "priority")},
        **{
            name: getattr(job, name)
            for name in ("attempts_made", "crashes", "returns", "fence", "worker", "cancel_asked")
        },
        **{name: getattr(job, name) for name in ("result", "created_at", "due_at", "started_at", "finished_at")},
        "state": model.seen(job),
        "error": error_word(job.error),
        "lifo": job.new.lifo,
    }


def error_word(error: str | None) -> str | None:
    """The first word of an error: what kind it is."""
    return None if error is None else error.split(":")[0].split()[0]


def compare_usage(model: Model, key: Key, usage: Usage) -> None:
    found, now, running = model.key(key), model.now, model.running(key, live=True)
    assert usage.kind == found.kind
    assert max(usage.opens_at, now) == max(model.opens_at(key, 1, live=True), now)
    assert usage.hold_until == (found.hold_until if found.hold_until > now else 0)
    pairs = []
    for part in found.parts:
        if isinstance(part.kind, Rate):
            pairs.append((part.spent(now), part.kind.max))
        elif isinstance(part.kind, Concurrency):
            pairs.append((running, part.kind.max))
        else:
            pairs.append((int(part.opens_at(running, 1) > now), 1))
    if not pairs:
        assert (usage.used, usage.allowed) == (running, None)
    elif all(used <= allowed for used, allowed in pairs):
        assert (usage.used, usage.allowed) == max(pairs, key=lambda pair: pair[0] / pair[1])
    else:
        assert usage.used >= (usage.allowed or 0)  # more than full: how much more is no store's promise
    met = [
        job
        for job in model.jobs
        if model.seen(job) is JobState.WAITING and key in [held for held, _ in model.keys_of(job)]
    ]
    assert sum(1 for job in met if job.filed) <= usage.waiting <= len(met)


# the tests


def machine_of(store: str) -> type[Together]:
    return type("Together", (Together,), {"open": staticmethod(OPENERS[store])})


@pytest.mark.parametrize("store", OPENERS)
def test_a_store_and_the_plain_model_decide_the_same(store: str) -> None:
    run_state_machine_as_test(
        machine_of(store),
        settings=settings(
            # Where a step takes a transaction, fewer histories take as long.
            max_examples=EXAMPLES if store == "memory" else EXAMPLES // 3,
            stateful_step_count=50,
            deadline=None,
            # The same histories in every build; a longer look, with PACELINE_MODEL_EXAMPLES, takes new ones.
            derandomize="PACELINE_MODEL_EXAMPLES" not in os.environ,
            report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.parametrize("store", OPENERS)
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.says)
def test_what_once_told_a_store_and_the_model_apart_no_longer_does(history: History, store: str) -> None:
    machine = machine_of(store)()
    try:
        for step, arguments in history.steps:
            getattr(machine, step)(**arguments)
            machine.changed_numbers_are_noticed()
            machine.everything_that_can_be_read_is_the_same()
    finally:
        machine.teardown()
