"""What a process remembers between transactions is what the file says: one that remembers decides as memory does.

A file is driven by one handle that remembers, and now and then by another one that interferes; the memory store does
the same at the same times. Nothing is read in between: looking could make the handle forget, and hide what is wrong.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from paceline import Concurrency, Delay, EvenlySpaced, Limit, PacelineError, Queue, Rate, StoreError, Unique
from paceline.job import JobState, Move
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Hold, Lease, Outcome, Override, Target
from paceline.stores.sqlite import unit

from ..clocks import HandClock
from .helpers import HOUR, SECOND, start

KINDS = [
    Rate(2, per="10s", guard=0),
    Concurrency(1),
    Concurrency(2),
    Delay("1s"),
    EvenlySpaced(5, per="10s"),
    Rate(3, per="5s", guard=0) & Concurrency(2),
]
OUTCOMES = [Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED, Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED]
QUEUES = ("a", "b")
TASKS = ("t", "u", "v")
GROUPS = (None, "g", "h")
LIMITS: dict[str, dict[str, Any]] = {
    "all": {},
    "u": {"tasks": ["u"]},
    "b": {"queues": ["b"]},
    "tenant": {"by": "group"},
    "tenant t": {"by": "group", "tasks": ["t"]},
}
STEPS = {
    "add": 12,
    "claim": 14,
    "finish": 8,
    "pass_time": 6,
    "interfere": 3,
    "pause": 4,
    "move": 3,
    "move_all": 2,
    "drain": 2,
    "clean": 1,
    "obliterate": 1,
    "prune": 2,
    "declare": 2,
    "drop_limit": 1,
    "override": 2,
    "lift": 1,
    "hold": 1,
    "release": 1,
    "acquire": 2,
    "give_back": 1,
    "extend": 1,
}
OFTEN = ("add", "claim", "finish", "pass_time")


class Twins:
    """The same steps on the memory store and on a file."""

    def __init__(self, seed: int, memory: Any, here: Any, other: Any, clock: HandClock) -> None:
        self.random = random.Random(seed)
        self.memory = memory
        self.here = here
        self.other = other
        self.file = here
        self.clock = clock
        self.held: list[Any] = []
        self.ids: list[str] = []
        self.told: list[str] = []
        self.sleepers = [store.listen(QUEUES, "worker") for store in (memory, here)]
        # Few kinds of steps in each history: the rarer something is undone, the longer something wrong can last.
        rare = [name for name in STEPS if name not in OFTEN and self.random.random() < 0.3]
        self.names = [*OFTEN, *rare]
        self.interferes = self.random.choice([0, 0.02, 0.1])
        # More groups than are read at once, or one with more jobs than are read at once.
        self.groups = [*GROUPS, *(f"g{number}" for number in range(self.random.choice([0, 0, 20])))]
        self.most = self.random.choice([4, 4, 20])

    async def step(self) -> None:
        name = self.random.choices(self.names, [STEPS[name] for name in self.names])[0]
        self.file = self.other if self.random.random() < self.interferes else self.here
        await getattr(self, name)()

    async def both(self, what: str, call: Any) -> Any:
        """Do it on both: the same answer, or the same refusal."""
        answers = []
        for store in (self.memory, self.file):
            try:
                answers.append(await call(store))
            except StoreError:
                raise
            except PacelineError as error:
                answers.append(type(error))
        self.told.append(f"{'here' if self.file is self.here else 'other'}: {what} -> {_short(answers[0])}")
        assert _short(answers[0]) == _short(answers[1]), "\n".join([*self.told, f"the file: {_short(answers[1])}"])
        woken = [sleeper.event.is_set() for sleeper in self.sleepers]
        for sleeper in self.sleepers:
            sleeper.event.clear()
        if self.file is self.here and answers[0] != 0:
            # What another handle tells comes by another way, a little later; nothing removed is nothing to wake for.
            assert woken[1] or not woken[0], "\n".join([*self.told, "a worker that sleeps is not woken"])
        return answers[0]

    async def add(self) -> None:
        choose, jobs = self.random.choice, []
        queue = choose(QUEUES)
        for _ in range(self.random.randrange(1, self.most)):
            self.ids.append(f"job {len(self.ids)}")
            options = {
                "job_id": self.ids[-1],
                "group": choose(self.groups),
                "delay": choose([0, 0, 0, 0, "5s"]),
                "cost": choose([1, 1, 1, 1, 2]),
                "priority": choose([0, 0, 0, -1]),
                "lifo": choose([False, False, False, True]),
                "unique": choose([None, None, None, Unique("key")]),
                "keep": choose(["7d", "7d", 0, "5s"]),
            }
            jobs.append((choose(TASKS), None, options))

        async def call(store: Any) -> Any:
            return [job.id for job in await Queue(queue, store=store).add_many(jobs)]

        await self.both(f"add to {queue} {jobs}", call)

    async def claim(self) -> None:
        queues = self.random.choice([QUEUES, QUEUES, QUEUES[:1], QUEUES[1:]])
        ask = Ask(
            queues=queues,
            slots=self.random.randrange(1, 4),
            worker="worker",
            lease=self.random.choice([5 * SECOND, HOUR]),
            tasks=self.random.choice([None, None, None, frozenset("tuv"), frozenset("tu")]),
        )

        async def call(store: Any) -> Any:
            claim = await store.claim(ask)
            return [(job.id, job.fence, job) for job in claim.jobs], claim.ask_again_at

        started = await self.both(f"claim {ask.slots} of {queues} {ask.tasks}", call)
        self.held += [(job_id, fence) for job_id, fence, _ in started[0]]

    async def finish(self) -> None:
        self.random.shuffle(self.held)
        number = self.random.randrange(1, 3)
        ended, self.held = self.held[:number], self.held[number:]
        outcome = self.random.choice(OUTCOMES)
        ends = [Finish(id=job_id, fence=fence, outcome=outcome, after=SECOND) for job_id, fence in ended]
        await self.both(f"finish {ended} {outcome}", lambda store: store.finish(ends))

    async def pass_time(self) -> None:
        by = self.random.choice([1, SECOND, SECOND, 5 * SECOND, 10 * SECOND])
        self.told.append(f"{by} pass")
        self.clock.at += by

    async def interfere(self) -> None:
        """Another process adds something that nobody here wants."""
        self.file = self.other
        await self.both("add elsewhere", lambda store: _add_elsewhere(store))

    async def pause(self) -> None:
        task, group = self.random.choice([(None, None), ("t", None), ("u", None), (None, "g"), (None, "h")])
        queue, paused = self.random.choice(QUEUES), self.random.random() < 0.4
        await self.both(f"pause {queue} {task} {group} {paused}", lambda store: store.pause(queue, task, group, paused))

    async def move(self) -> None:
        if self.ids:
            job_id, move = self.random.choice(self.ids[-20:]), self.random.choice(list(Move))
            if move is not Move.RETRY:  # two live jobs of one key are another matter
                await self.both(f"{move} {job_id}", lambda store: store.move([job_id], move))

    async def move_all(self) -> None:
        queue = self.random.choice(QUEUES)
        state, move = self.random.choice(
            [
                (JobState.DELAYED, Move.PROMOTE),
                (JobState.WAITING, Move.CANCEL),
                (JobState.DELAYED, Move.CANCEL),
                (JobState.COMPLETED, Move.REMOVE),
            ]
        )
        await self.both(f"{move} all {state} of {queue}", lambda store: store.move_all(queue, state, move))

    async def drain(self) -> None:
        queue = self.random.choice(QUEUES)
        await self.both(f"drain {queue}", lambda store: store.drain(queue))

    async def clean(self) -> None:
        queue, state = self.random.choice(QUEUES), self.random.choice([JobState.WAITING, JobState.COMPLETED])
        await self.both(f"clean {queue} {state}", lambda store: store.clean(queue, state, SECOND))

    async def obliterate(self) -> None:
        queue, force = self.random.choice(QUEUES), self.random.random() < 0.5
        await self.both(f"obliterate {queue} {force}", lambda store: store.obliterate(queue, force))

    async def prune(self) -> None:
        await self.both("prune", lambda store: store.prune())

    async def declare(self) -> None:
        name, kind = self.random.choice(list(LIMITS)), self.random.choice(KINDS)
        limit = Limit(name, kind, **LIMITS[name])
        await self.both(f"declare {limit}", lambda store: store.set_limits([limit]))

    async def drop_limit(self) -> None:
        name = self.random.choice(list(LIMITS))
        await self.both(f"drop {name}", lambda store: store.drop_limit(name))

    async def override(self) -> None:
        name, kind = self.random.choice(list(LIMITS)), self.random.choice(KINDS)
        group = self.random.choice(["g", None]) if LIMITS[name].get("by") else None
        for_ = self.random.choice([None, 5 * SECOND])
        override = Override(limit=name, kind=kind, group=group)
        await self.both(f"override {override} {for_}", lambda store: store.override(override, for_))

    async def lift(self) -> None:
        name = self.random.choice(list(LIMITS))
        await self.both(f"lift {name}", lambda store: store.lift(name, None))

    async def hold(self) -> None:
        name = self.random.choice(list(LIMITS))
        group = self.random.choice(["g", None]) if LIMITS[name].get("by") else None
        hold = Hold(limit=name, group=group, for_=self.random.choice([SECOND, 5 * SECOND]))
        await self.both(f"hold {name} {group}", lambda store: store.hold([hold]))

    async def release(self) -> None:
        name = self.random.choice(list(LIMITS))
        await self.both(f"release {name}", lambda store: store.release(name, None))

    async def acquire(self) -> None:
        name, permit = self.random.choice(list(LIMITS)), f"permit {self.random.randrange(3)}"
        target = Target(name, self.random.choice(["g", "h"]) if LIMITS[name].get("by") else None)
        await self.both(f"acquire {target} {permit}", lambda store: store.acquire([target], permit, 5 * SECOND))

    async def give_back(self) -> None:
        permit = f"permit {self.random.randrange(3)}"
        await self.both(f"give back {permit}", lambda store: store.give_back([permit]))

    async def extend(self) -> None:
        leases = [Lease(job_id, fence) for job_id, fence in self.held[:2]]
        await self.both(f"extend {leases}", lambda store: store.extend("worker", leases, 20 * SECOND))


def _short(answer: Any) -> Any:
    """An answer without what may differ: the jobs of a claim by id and fence."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], list):
        return [found[:2] for found in answer[0]], answer[1]
    return answer


async def _add_elsewhere(store: Any) -> None:
    await Queue("elsewhere", store=store).add("x", delay="1h")


@pytest.fixture
async def twins(opener):
    clock = HandClock()
    memory = open_store("memory://", clock=clock)
    here, other = opener(clock=clock), opener(clock=clock)
    await other.open()
    yield lambda seed: Twins(seed, memory, here, other, clock)
    await memory.close()


@pytest.mark.parametrize("seed", [12, 24, 35, 78, 267, 343, *range(4)])  # the first ones found faults once
async def test_a_handle_that_remembers_starts_what_memory_starts(twins, seed):
    history = twins(seed)

    for _ in range(150):
        await history.step()


@pytest.mark.parametrize("seed", range(100, 106))
async def test_groups_that_are_set_aside_come_back_as_they_were(twins, seed, monkeypatch):
    """As many groups as there may be: none stays at hand between two steps."""
    monkeypatch.setattr(unit, "AT_HAND", 0)
    history = twins(seed)

    for _ in range(150):
        await history.step()


async def test_jobs_wait_in_more_lanes_than_a_claim_reads_at_once(store, opener):
    """Of forty groups the first ones are shut for an hour: a claim of one slot looks behind them."""
    await store.set_limits([Limit("tenant", Delay("1h"), by="group", tasks=["t"])])
    queue = Queue("line", store=store)
    groups = [f"g{number:02}" for number in range(40)]
    await queue.add_many([("t", None, {"group": group}) for group in groups] * 2)

    started = [job.group for _ in range(40) for job in await start(opener(), 1)]

    assert started == groups
    assert await start(opener(), 1) == []


async def test_jobs_that_are_added_after_a_drain_of_jobs_nobody_had_read_start(store):
    queue = Queue("line", store=store)
    await queue.add_many([("u", None), ("t", None)])
    await queue.pause(task="t")
    await queue.drain()
    assert await start(store) == []

    jobs = [await queue.add("u") for _ in range(3)]

    assert [job.id for job in await start(store, 5)] == [job.id for job in jobs]


async def forgets(store: Any, other: Any, how: str) -> None:
    """What makes a process forget what it knew, but for what it does next."""
    if how == "prune":
        await store.prune()
    else:
        await _add_elsewhere(other)


@pytest.mark.parametrize("how", ["prune", "another process"])
async def test_a_group_that_is_paused_and_resumed_goes_on(store, opener, how):
    queue = Queue("line", store=store)
    await queue.add("t")
    assert len(await start(store)) == 1
    await forgets(store, opener(), how)

    job = await queue.add("t", group="ada")
    await queue.pause(group="ada")
    assert await start(store) == []
    await queue.resume(group="ada")

    assert [found.id for found in await start(store)] == [job.id]


@pytest.mark.parametrize("how", ["prune", "another process"])
@pytest.mark.parametrize("when", ["before the start", "before the end", "before both"])
async def test_a_group_limit_over_two_queues_hides_neither(store, opener, how, when):
    other = opener()
    await store.set_limits([Limit("tenant", Concurrency(1), by="group")])
    for name in QUEUES:
        await Queue(name, store=store).add_many([("t", None, {"group": "bob"})] * 10)

    queues: list[str] = []
    for number in range(20):
        if when != "before the end" and number % 4 == 2:
            await forgets(store, other, how)
        claim = await store.claim(Ask(queues=QUEUES, slots=4, worker="worker", lease=HOUR))
        assert len(claim.jobs) == 1, f"after {queues}"
        queues.append(claim.jobs[0].queue)
        if when != "before the start" and number % 4 == 2:
            await forgets(store, other, how)
        end = Finish(id=claim.jobs[0].id, fence=claim.jobs[0].fence, outcome=Outcome.COMPLETED)
        await store.finish([end])

    assert sorted(queues) == ["a"] * 10 + ["b"] * 10


async def test_a_lane_that_opens_in_a_claim_of_another_process_that_starts_nothing_is_open(opener):
    clock = HandClock()
    here, other = opener(clock=clock), opener(clock=clock)
    await here.set_limits([Limit("tenant", Delay("1s"), by="group")])
    queue = Queue("line", store=here)
    await queue.add_many([("u", None), *[("t", None, {"group": "ada"})] * 2])
    assert len(await start(other, tasks=frozenset("u"))) == 1
    assert len(await start(other, 2)) == 1
    await queue.add("t", group="ada")

    clock.at += SECOND
    assert await start(other, tasks=frozenset("u")) == []

    assert len(await start(here)) == 1


async def test_a_group_keeps_its_turn_when_its_classes_become_one(twins):
    """Its lane in the class that stays was empty, and stood at an older turn."""
    history = twins(0)
    await history.both("declare", lambda store: store.set_limits([Limit("u", Rate(9, per="1h"), tasks=["u"])]))

    async def add(*jobs: tuple[str, str, str | None]) -> None:
        wanted = [(task, None, {"job_id": job_id, "group": group}) for job_id, task, group in jobs]

        async def call(store: Any) -> Any:
            return [job.id for job in await Queue("a", store=store).add_many(wanted)]

        await history.both("add", call)

    async def claim(slots: int) -> None:
        ask = Ask(queues=("a",), slots=slots, worker="worker", lease=HOUR)

        async def call(store: Any) -> Any:
            return [job.id for job in (await store.claim(ask)).jobs]

        await history.both("claim", call)

    await add(("1", "t", None))
    await claim(1)
    await add(("2", "t", "h"), ("3", "u", None), ("4", "u", "h"), ("5", "t", "i"), ("6", "u", "i"), ("7", "u", None))
    await claim(2)
    await history.both("drop", lambda store: store.drop_limit("u"))

    for _ in range(5):
        await claim(1)
