"""What a file counts is what is in it, and no job is forgotten: random histories on two handles, with rollbacks."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from paceline import Concurrency, Delay, EvenlySpaced, Group, Limit, PacelineError, Queue, Rate, StoreError, Unique
from paceline.job import JobState, Move
from paceline.stores.interface import Ask, Finish, Hold, Outcome, Override, Target

from ..clocks import HandClock
from .helpers import SECOND

KINDS = [
    Rate(3, per="10s"),
    Concurrency(2),
    Delay("1s"),
    EvenlySpaced(5, per="10s"),
    Rate(5, per="5s") & Concurrency(3),
]
OUTCOMES = [Outcome.COMPLETED, Outcome.FAILED, Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED]
QUEUES = ("a", "b", "c")


class History:
    """Random steps on two handles of one file, some of them inside transactions that are undone."""

    def __init__(self, seed: int, stores: list[Any], clock: HandClock, mine: sqlite3.Connection) -> None:
        self.random = random.Random(seed)
        self.stores = stores
        self.clock = clock
        self.mine = mine
        self.held: list[Any] = []

    async def step(self) -> None:
        names = ["add", "add_within", "claim", "finish", "rules", "pause", "move", "restart", "pass_time"]
        name = self.random.choice(names)
        try:
            await getattr(self, name)(self.random.choice(self.stores))
        except StoreError:
            raise
        except PacelineError:
            pass  # a refusal: the file must be as if nobody had asked

    def jobs(self) -> list[Any]:
        choose = self.random.choice
        options = {
            "group": choose([None, "g", "h", Group("g", max_size=6)]),
            "delay": choose([0, 0, 0, "5s"]),
            "cost": choose([1, 1, 2, 9]),
            "lifo": choose([False, True]),
            "job_id": choose([None, None, f"id{self.random.randrange(30)}"]),
            "unique": choose([None, None, Unique("key")]),
        }
        return [(choose(["t", "u", "v"]), None, options) for _ in range(self.random.randrange(1, 4))]

    async def add(self, store: Any) -> None:
        await Queue(self.random.choice(QUEUES), store=store).add_many(self.jobs())

    async def add_within(self, store: Any) -> None:
        for _ in range(self.random.randrange(1, 3)):
            with suppress(PacelineError):
                await Queue(self.random.choice(QUEUES), store=store).add_many(self.jobs(), within=self.mine)
        self.random.choice([self.mine.commit, self.mine.rollback])()

    async def claim(self, store: Any) -> None:
        tasks = self.random.choice([None, None, frozenset("tu")])
        lease = self.random.choice([SECOND, 100 * SECOND])
        ask = Ask(queues=QUEUES, slots=self.random.randrange(1, 5), worker="worker", lease=lease, tasks=tasks)
        self.held += (await store.claim(ask)).jobs

    async def finish(self, store: Any) -> None:
        self.random.shuffle(self.held)
        ended, self.held = self.held[:2], self.held[2:]
        outcome = self.random.choice(OUTCOMES)
        await store.finish([Finish(id=job.id, fence=job.fence, outcome=outcome) for job in ended])

    async def rules(self, store: Any) -> None:
        kind = self.random.choice(KINDS)
        step = self.random.randrange(6)
        if step == 0:
            await store.set_limits([Limit("all", kind)])
        elif step == 1:
            await store.set_limits([Limit("tenant", kind, by="group", tasks=["t"])])
        elif step == 2:
            await store.drop_limit(self.random.choice(["all", "tenant"]))
        elif step == 3:
            await store.hold([Hold(limit="all", for_=SECOND)])
        elif step == 4:
            await store.override(Override(limit="all", kind=kind), self.random.choice([None, SECOND]))
        else:
            await store.acquire([Target("all")], f"permit {self.random.randrange(3)}", SECOND)

    async def pause(self, store: Any) -> None:
        what = self.random.choice([(None, None), ("t", None), (None, "g")])
        await store.pause(self.random.choice(QUEUES), *what, self.random.random() < 0.4)

    async def move(self, store: Any) -> None:
        queue, state = self.random.choice(QUEUES), self.random.choice([JobState.COMPLETED, JobState.FAILED])
        if self.random.random() < 0.3:
            await store.move_all(queue, state, Move.RETRY)
        else:
            await store.move([f"id{self.random.randrange(30)}"], self.random.choice(list(Move)))

    async def restart(self, store: Any) -> None:
        await store.prune()
        await store.close()

    async def pass_time(self, store: Any) -> None:
        self.clock.at += self.random.choice([1, SECOND, 10 * SECOND])


def faults(path: Path) -> list[tuple[Any, ...]]:
    """Numbers in the file that are not what they count, and jobs that are not where they should be."""
    with closing(sqlite3.connect(path)) as db:
        lanes = db.execute(
            "SELECT 'lane', id, waiting, (SELECT count(*) FROM paceline_wait WHERE lane = paceline_lane.id) AS found "
            "FROM paceline_lane WHERE waiting <> found"
        ).fetchall()
        groups = db.execute(
            "SELECT 'group', id, waiting, "
            "(SELECT coalesce(sum(waiting), 0) FROM paceline_lane WHERE grp = paceline_group.id) AS found "
            "FROM paceline_group WHERE waiting <> found"
        ).fetchall()
        homeless = db.execute(
            "SELECT 'lane not there', lane FROM paceline_wait WHERE lane NOT IN (SELECT id FROM paceline_lane)"
        ).fetchall()
        jobs = db.execute("SELECT n, state, first_due_at > created_at FROM paceline_jobs").fetchall()
        places = Counter(n for table in ("wait", "delayed") for (n,) in db.execute(f"SELECT n FROM paceline_{table}"))
    wrong = []
    for n, state, delayed in jobs:
        state = state or ("delayed" if delayed else "waiting")
        if places.pop(n, 0) != (state in ("waiting", "delayed")):
            wrong.append(("job", n, state))
    return lanes + groups + homeless + wrong + [("a place of a job that is not there", n) for n in places]


@pytest.mark.parametrize("seed", [22, 33, 54, *range(3)])  # the first ones found faults once
async def test_nothing_is_miscounted_and_every_job_starts_once_all_limits_are_gone(seed, opener, program, path):
    clock = HandClock()
    stores = [opener(clock=clock) for _ in range(2)]
    for store in stores:
        await store.open()
    history = History(seed, stores, clock, program())
    for _ in range(90):
        await history.step()
    for store in stores:
        await store.close()
    assert faults(path) == []

    for queue in QUEUES:
        for task, group in ((None, None), ("t", None), (None, "g")):
            await stores[0].pause(queue, task, group, False)
    for limit in ("all", "tenant"):
        await stores[1].drop_limit(limit)
    for turn in range(40):
        clock.at += 200 * SECOND
        ask = Ask(queues=QUEUES, slots=20, worker="last", lease=SECOND * 10_000)
        jobs = (await stores[turn % 2].claim(ask)).jobs
        await stores[turn // 2 % 2].finish(
            [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in jobs]
        )
    for store in stores:
        counts = [await Queue(queue, store=store).counts() for queue in QUEUES]
        assert [(found["waiting"], found["delayed"], found["active"]) for found in counts] == [(0, 0, 0)] * 3
