"""Whole histories on the memory store and on the Redis store: every answer of every step is the same, to the field."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from paceline.errors import PacelineError
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Limit, Rate, Unlimited
from paceline.stores import open_store
from paceline.stores.interface import (
    Ask,
    Filter,
    Finish,
    Grant,
    Hold,
    Lease,
    Outcome,
    Override,
    Standing,
    Store,
    Target,
    Usage,
)

from ..servers.redis import empty_redis
from .test_kinds_in_lua import At

HISTORIES = int(os.environ.get("PACELINE_LUA_HISTORIES", "40"))
STEPS = 80
QUEUES, TASKS, GROUPS = ("q", "r"), ("a", "b", "c"), (None, "x", "y", "z")
SCOPES: dict[str, dict[str, Any]] = {
    "all": {},
    "ab": {"tasks": ["a", "b"]},
    "r": {"queues": ["r"]},
    "tenant": {"by": "group"},
    "tenant a": {"by": "group", "tasks": ["a"], "overrides": {"z": Rate(4, per="10us")}},
}
KINDS = [
    Rate(2, per="10us"),
    Rate(4, per="20us", guard="1us"),
    Rate(3, per="20us") & Concurrency(2),
    Concurrency(1),
    Concurrency(3),
    Delay("5us"),
    EvenlySpaced(3, per="20us"),
    AllOf(Rate(3, per="10us"), Rate(5, per="40us")),
    Unlimited(),
]
TIMES = [0, 0, 1, 1, 2, 5, 9, 10, 11, 20, 25, 60, 200]


def plain(answer: Any) -> Any:
    """An answer as lists and mappings; numbers that jobs are ordered by may have gaps after a refused insert."""
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    if isinstance(answer, msgspec.Struct):
        fields = {name: plain(getattr(answer, name)) for name in answer.__struct_fields__}
        return fields | {"order": fields["order"] > 0} if isinstance(answer, JobRecord) else fields
    if isinstance(answer, Usage | Standing):
        fields = {field.name: plain(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
        if isinstance(answer, Usage) and answer.allowed is not None:
            fields["used"] = min(answer.used, answer.allowed)  # more than full: how much more is no store's promise
        return fields
    return answer


class Both:
    """One history, told to both stores."""

    def __init__(self, memory: Store, redis: Store, clock: At, chance: random.Random) -> None:
        self.memory, self.redis, self.clock, self.chance = memory, redis, clock, chance
        self.ids: list[str] = []
        self.leases: list[tuple[str, int]] = []
        self.permits: list[str] = []
        self.refused: str | None = None
        self.declared: list[str] = []
        self.claims = 0
        self.told: list[str] = []

    async def tell(self, what: str, call: Callable[[Store], Any]) -> Any:
        """Both answers, which must be equal; errors must be of one type and text."""
        self.told.append(f"{self.clock.at}: {what}")
        answers: list[Any] = []
        for store in (self.memory, self.redis):
            try:
                answers.append(await call(store))
            except PacelineError as error:
                answers.append((type(error), str(error)))
        expected, got = plain(answers[0]), plain(answers[1])
        assert expected == got, "\n".join([*self.told, f"memory: {expected}", f"redis: {got}"])
        return answers[0]

    async def step(self) -> None:
        names = [name.removeprefix("do_") for name in dir(self) if name.startswith("do_")]
        weights = [{"insert": 6, "claim": 8, "finish": 4, "time": 6}.get(name, 1) for name in names]
        await getattr(self, "do_" + self.chance.choices(names, weights)[0])()
        await self.look()

    async def look(self) -> None:
        for queue in QUEUES:
            await self.tell("counts", lambda store, queue=queue: store.counts(queue))
        if self.ids:
            job_id = self.chance.choice(self.ids)
            await self.tell(f"standing {job_id}", lambda store: store.standing(job_id))
        if self.declared:
            name = self.chance.choice(self.declared)
            group = self.chance.choice(["x", "z"]) if "tenant" in name else None
            await self.tell(f"usage {name} {group}", lambda store: store.usage(name, group))

    # what may happen

    async def do_insert(self) -> None:
        chance, jobs = self.chance, []
        for _ in range(chance.randint(1, 5)):
            fresh = not self.ids or chance.random() < 0.95
            job_id = f"job {len(self.ids)}" if fresh else chance.choice(self.ids)
            if fresh:
                self.ids.append(job_id)
            jobs.append(
                NewJob(
                    job_id,
                    chance.choice(QUEUES),
                    chance.choice(TASKS),
                    data=b'{"n": "\xc3\xa9"}',
                    group=chance.choice(GROUPS),
                    group_max_size=chance.choice([None, None, None, 6]),
                    delay=chance.choice([0, 0, 0, 5, 30]),
                    priority=chance.choice([0, 0, 0, -1, 1]),
                    lifo=chance.random() < 0.1,
                    attempts=3,
                    cost=chance.choice([1, 1, 1, 1, 2, 3, {"all": 2}, {"tenant": 3}]),
                    keep=chance.choice([None, None, 0, 50]),
                    unique=chance.choice([None, None, None, "one"]),
                    unique_ttl=chance.choice([None, 20]),
                )
            )
        await self.tell(f"insert {jobs}", lambda store: store.insert(jobs))

    async def do_claim(self) -> None:
        chance = self.chance
        self.claims += 1
        shared = [name for name in self.declared if "tenant" not in name]
        ask = Ask(
            queues=chance.choice([("q",), ("r",), ("q", "r"), ("r", "q")]),
            slots=chance.choice([1, 1, 2, 4, 10]),
            worker=chance.choice(["w1", "w2"]),
            lease=chance.choice([12, 25, 10_000]),
            claim_id=f"claim {self.claims - (chance.random() < 0.05)}",
            tasks=chance.choice([None, None, None, frozenset("ab"), frozenset("c")]),
            also=tuple(chance.sample(shared, 1)) if shared and chance.random() < 0.1 else (),
            room=chance.choice([None, None, None, 3]),
            most=chance.choice([None, None, None, 2]),
        )
        ends = [self.ending() for _ in range(chance.randint(0, 3))] if self.leases and chance.random() < 0.5 else []
        answer = await self.tell(f"claim {ask} {ends}", lambda store: store.claim(ask, ends))
        if not isinstance(answer, tuple):
            self.leases += [(job.id, job.fence) for job in answer.jobs]

    def ending(self) -> Finish:
        chance = self.chance
        job_id, fence = chance.choice(self.leases[-12:])
        holds = ()
        if self.declared and chance.random() < 0.2:
            name = chance.choice(self.declared)
            group = chance.choice("xy") if "tenant" in name else None
            holds = (Hold(limit=name, group=group, for_=chance.choice([None, 5, 15]), jitter=chance.choice([0, 0.5])),)
        return Finish(
            id=job_id,
            fence=fence + (chance.random() < 0.05),
            outcome=chance.choice([*Outcome, Outcome.COMPLETED, Outcome.COMPLETED]),
            result=chance.choice([None, b"7", b"\xff\x00"]),
            error=chance.choice([None, "bröken"]),
            after=chance.choice([0, 7]),
            when_open=chance.random() < 0.3,
            holds=holds,
        )

    async def do_finish(self) -> None:
        if self.leases:
            ends = [self.ending() for _ in range(self.chance.randint(1, 4))]
            await self.tell(f"finish {ends}", lambda store: store.finish(ends))

    async def do_time(self) -> None:
        self.clock.at += self.chance.choice(TIMES)

    async def do_extend(self) -> None:
        held = [Lease(*lease) for lease in self.leases[-4:]] + [Lease(permit, 0) for permit in self.permits[-2:]]
        await self.tell(f"extend {held}", lambda store: store.extend("w1", held, 25))

    async def do_move(self) -> None:
        if self.ids:
            job_id, move = self.chance.choice(self.ids[-10:]), self.chance.choice(list(Move))
            await self.tell(f"{move} {job_id}", lambda store: store.move([job_id], move))

    async def do_pause(self) -> None:
        chance = self.chance
        queue, task = chance.choice(QUEUES), chance.choice([None, "a", "b"])
        group, paused = chance.choice([None, "x"]), chance.random() < 0.4
        await self.tell(f"pause {queue, task, group, paused}", lambda s: s.pause(queue, task, group, paused))

    async def do_declare(self) -> None:
        name, kind = self.chance.choice(list(SCOPES)), self.chance.choice(KINDS)
        limit = Limit(name, kind, **SCOPES[name])
        await self.tell(f"declare {limit}", lambda store: store.set_limits([limit]))
        self.declared = sorted({*self.declared, name})

    async def do_drop(self) -> None:
        if len(self.declared) > 3:
            name = self.declared.pop(self.chance.randrange(len(self.declared)))
            await self.tell(f"drop {name}", lambda store: store.drop_limit(name))

    async def do_override(self) -> None:
        if self.declared:
            name, kind = self.chance.choice(self.declared), self.chance.choice(KINDS)
            group = self.chance.choice([None, "x"]) if "tenant" in name else None
            said, length = Override(limit=name, kind=kind, group=group), self.chance.choice([None, 15])
            if self.chance.random() < 0.5:
                await self.tell(f"override {said} {length}", lambda store: store.override(said, length))
            else:
                await self.tell(f"lift {name} {group}", lambda store: store.lift(name, group))
            await self.tell("overrides", lambda store: store.overrides())

    async def do_hold(self) -> None:
        if self.declared:
            name = self.chance.choice(self.declared)
            group = self.chance.choice("xy") if "tenant" in name else None
            hold = Hold(limit=name, group=group, for_=self.chance.choice([None, 3, 20]), reason="busy")
            match self.chance.choice(["hold", "hold", "release", "clear"]):
                case "hold":
                    await self.tell(f"{hold}", lambda store: store.hold([hold]))
                case "release":
                    await self.tell(f"release {name} {group}", lambda store: store.release(name, group))
                case _:
                    await self.tell(f"clear {name} {group}", lambda store: store.clear(name, group))

    async def do_acquire(self) -> None:
        if self.declared:
            name = self.chance.choice(self.declared)
            group = self.chance.choice("xy") if "tenant" in name else None
            permit = self.refused if self.refused and self.chance.random() < 0.4 else f"permit {len(self.permits)}"
            self.refused = None
            self.permits.append(permit)
            target = Target(name, group, self.chance.choice([1, 1, 1, 2, 3]))
            waits, force = self.chance.random() < 0.5, self.chance.random() < 0.1
            grant = await self.tell(
                f"acquire {target} {permit} {waits} {force}",
                lambda store: store.acquire([target], permit, 25, force, waits),
            )
            if isinstance(grant, Grant) and not grant.granted:
                self.refused = permit

    async def do_give_back(self) -> None:
        if self.permits:
            permit = self.chance.choice(self.permits[-3:])
            await self.tell(f"give back {permit}", lambda store: store.give_back([permit]))

    async def do_sweep(self) -> None:
        queue, state = self.chance.choice(QUEUES), self.chance.choice(list(JobState))
        match self.chance.choice(["prune", "prune", "clean", "retry", "drain", "find"]):
            case "prune":
                await self.tell("prune", lambda store: store.prune())
            case "clean":
                await self.tell(f"clean {queue} {state}", lambda store: store.clean(queue, state, 10))
            case "retry":
                await self.tell(f"retry all {queue}", lambda s: s.move_all(queue, JobState.FAILED, Move.RETRY))
            case "drain" if self.chance.random() < 0.2:
                await self.tell(f"drain {queue}", lambda store: store.drain(queue))
            case "find":
                wanted = Filter(queue=queue, state=state, limit=5)
                await self.tell(f"find {wanted}", lambda store: store.find(wanted))


@pytest.mark.parametrize("part", range(4))
def test_a_history_is_the_same_on_both_stores(part: int) -> None:
    async def run(seed: int) -> None:
        clock = At()
        memory, redis = open_store("memory://", clock=clock), open_store(empty_redis(), clock=clock)
        both = Both(memory, redis, clock, random.Random(seed))
        try:
            for _ in range(STEPS):
                await both.step()
            for queue in QUEUES:
                everything = Filter(queue=queue, limit=10_000)
                await both.tell(f"all of {queue}", lambda store, page=everything: store.find(page))
                await both.tell(f"starts of {queue}", lambda store, name=queue: store.starts(name, None))
            await both.tell("get", lambda store: store.get(both.ids))
        finally:
            await redis.close()

    for seed in range(part, HISTORIES, 4):
        asyncio.run(run(seed))
