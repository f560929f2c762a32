"""A dropped limit leaves nothing behind that stops, refuses or counts anybody: whatever waited, ran, was held or kept
under it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.job import JobState
from paceline.limits import Concurrency, Delay, EvenlySpaced, Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Claim, Finish, Outcome, Override, Store, Target

from .builders import (
    DAY,
    SECOND,
    a_job,
    add,
    add_many,
    ask,
    claim,
    claimed,
    complete,
    declare,
    hold,
    start,
    start_all,
    state_of,
    usage,
)

CLOSED = Rate(1, per="1h")


async def test_tasks_whose_limits_were_dropped_one_after_the_other_start(store):
    await declare(store, "mail", CLOSED, tasks=["mail"])
    await declare(store, "slow", Concurrency(1), tasks=["slow"])
    await add_many(store, 5, task="mail")
    await add_many(store, 5, task="slow")
    assert len(await start_all(store)) == 2

    await store.drop_limit("mail")
    await store.drop_limit("slow")

    await add(store, "other", task="other")
    assert len((await claim(store, 3)).jobs) == 3
    assert len(await start_all(store, 4)) == 6


@pytest.mark.parametrize("dropped", [["a"], ["b"], ["a", "b"], ["b", "a"]], ids="-".join)
async def test_dropping_some_limits_of_a_task_leaves_the_others(store, dropped):
    await declare(store, "a", Rate(1, per="1h"), tasks=["one", "both"])
    await declare(store, "b", Rate(2, per="1h"), tasks=["two", "both"])
    for task in ("one", "two", "both", "none"):
        await add_many(store, 4, task=task)
    await start_all(store)

    for name in dropped:
        await store.drop_limit(name)

    left = {"a": {"one"}, "b": {"two"}}
    closed = {"both", "one", "two"} if not dropped else set()
    for name in {"a", "b"} - set(dropped):
        closed |= left[name] | {"both"}
    started = {job.task for job in await start_all(store, 3)}
    assert started.isdisjoint(closed)
    assert {"one", "two", "both"} - closed <= started


async def test_runs_that_a_dropped_limit_counted_end_as_usual(store):
    await declare(store, "slots", Concurrency(2))
    await add_many(store, 6)
    running = await start(store, 2)

    await store.drop_limit("slots")
    await declare(store, "slots", Concurrency(2))

    # What began before the limit of that name was declared anew is not counted under it, and neither is its end.
    more = await start(store, 2)
    await complete(store, running)
    assert ((await usage(store, "slots")).used, claimed(await claim(store, 2))) == (2, [])
    await complete(store, more)
    assert len((await claim(store, 5)).jobs) == 2


async def test_a_limit_that_room_was_kept_under_may_be_dropped(store):
    await declare(store, "all", Rate(4, per="1h"))
    await declare(store, "slow", Concurrency(3), tasks=["slow"])
    await add_many(store, 2)
    await start(store, 2)
    await add(store, "big", cost=3)
    await add_many(store, 3, task="slow")
    assert claimed(await claim(store, 2)) == []

    await store.drop_limit("all")

    assert len((await claim(store, 9)).jobs) == 4


async def test_a_big_job_keeps_room_under_what_is_left(store, clock):
    await declare(store, "a", Rate(4, per="10s"))
    await declare(store, "b", Rate(4, per="20s"))
    await add_many(store, 2)
    await start(store, 2)
    await add(store, "big", cost=3)
    assert claimed(await claim(store, 2)) == []

    await store.drop_limit("b")
    await add_many(store, 2)

    refused = await claim(store, 2)
    assert (claimed(refused), refused.ask_again_at) == ([], clock.now() + 10 * SECOND)
    clock.advance("10s")
    assert claimed(await claim(store, 1)) == ["big"]


@pytest.mark.parametrize("kind", [Concurrency(1), CLOSED, CLOSED & Concurrency(1), Delay("1h")], ids=repr)
async def test_groups_that_waited_under_a_dropped_limit_start_in_every_queue(store, kind):
    await declare(store, "tenant", kind, by="group", overrides={"vip": Rate(2, per="1h")})
    await store.override(Override(limit="tenant", kind=Rate(1, per="1h"), group="late"), None)
    for queue in ("line", "row"):
        for group in ("acme", "vip", "late"):
            await add_many(store, 3, queue=queue, group=group)
    running = await start_all(store, queues=["line", "row"])
    assert len(running) == 4

    await store.drop_limit("tenant")

    assert len((await claim(store, 3, queues=["row"])).jobs) == 3
    await complete(store, running)
    assert len(await start_all(store, 5, queues=["line", "row"])) == 18 - 4 - 3


async def test_a_dropped_limit_held_by_somebody_is_not_held_when_it_is_declared_again(store):
    await declare(store, "mail", Concurrency(5), tasks=["mail"])
    await hold(store, "mail", for_="1h")
    await add_many(store, 3, task="mail")
    assert claimed(await claim(store, 3)) == []

    await store.drop_limit("mail")
    await declare(store, "mail", Concurrency(2), tasks=["mail"])

    assert len((await claim(store, 3)).jobs) == 2


async def test_a_permit_of_a_dropped_limit_may_be_given_back(store):
    await declare(store, "api", Concurrency(1))
    target = Target(limit="api", group=None, cost=1)
    assert (await store.acquire([target], "p1", DAY)).granted

    await store.drop_limit("api")
    with pytest.raises(ConfigError, match="api"):
        await store.acquire([target], "p2", DAY)
    await declare(store, "api", Concurrency(1))
    assert (await store.acquire([target], "p3", DAY)).granted
    await store.give_back(["p1"])

    assert not (await store.acquire([target], "p4", DAY)).granted


async def test_a_paused_task_stays_paused_when_its_limit_is_dropped(store):
    await declare(store, "mail", CLOSED, tasks=["mail"])
    await declare(store, "slow", CLOSED, tasks=["slow"])
    await add_many(store, 3, task="mail")
    await add_many(store, 3, task="slow")
    await store.pause("line", "mail", None, True)
    await start(store)

    await store.drop_limit("mail")
    await store.drop_limit("slow")
    assert {job.task for job in await start_all(store, 3)} == {"slow"}
    await store.pause("line", "mail", None, False)

    assert {job.task for job in await start_all(store, 3)} == {"mail"}


@pytest.mark.parametrize("by", [None, "group"])
async def test_a_job_that_went_back_after_its_limit_was_dropped_starts_again(store, by):
    await declare(store, "it", Concurrency(1), by=by)
    await add_many(store, 3, group="acme")
    (job,) = await start(store)

    await store.drop_limit("it")
    await store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.RETRY, after=0)])

    assert len(await start_all(store, 2)) == 3
    assert await state_of(store, job.id) is JobState.ACTIVE


async def test_limits_dropped_while_many_claim_stop_nobody(store, in_threads):
    """Each limit comes and goes; whatever a claim saw of it, it gives jobs or nothing, and no error."""
    scopes: list[dict[str, Any]] = [{"tasks": ["a"]}, {"tasks": ["b"]}, {"by": "group"}, {"queues": ["line"]}]
    for number in range(60):
        await add(store, f"{number}", task="ab"[number % 2], group=f"g{number % 5}")

    async def work(store: Store, index: int) -> int:
        done = 0
        for step in range(12):
            if index < 2:
                name = f"limit-{index}"
                await store.set_limits([Limit(name, Concurrency(2), **scopes[(step + index) % len(scopes)])])
                await store.drop_limit(name)
                continue
            jobs = (await store.claim(ask(3, worker=f"w{index}"))).jobs
            await store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in jobs])
            done += len(jobs)
        return done

    done = sum(await in_threads(6, work))
    assert len(await start_all(store, 7)) == 60 - done


async def test_a_limit_dropped_while_many_acquire_is_there_or_not(store, in_threads):
    async def work(store: Store, index: int) -> None:
        for step in range(15):
            if index == 0:
                await store.set_limits([Limit("api", Concurrency(50) & Rate(500, per="1h"), by="group")])
                await store.drop_limit("api")
                continue
            targets = [Target(limit="api", group=f"g{(index + step + more) % 3}", cost=1) for more in range(2)]
            try:
                await store.acquire(targets, f"p{index}-{step}", DAY)
            except ConfigError as error:
                assert error.option == "limit"

    await in_threads(5, work)


KINDS = [
    CLOSED,
    Rate(3, per="5s"),
    Concurrency(1),
    Concurrency(2) & Rate(4, per="2s"),
    Delay("500ms"),
    EvenlySpaced(4, per="1s"),
]
SCOPES: list[dict[str, Any]] = [
    {},
    {"tasks": ["a"]},
    {"tasks": ["a", "b"]},
    {"queues": ["line"]},
    {"queues": ["row"], "tasks": ["c"]},
    {"by": "group"},
    {"by": "group", "tasks": ["b", "c"]},
]
NAMES = ["north", "east", "south", "west"]


class Twins:
    """A store and the reference, told the same."""

    def __init__(self, *stores: Store) -> None:
        self.stores = stores
        self.running: list[tuple[Any, ...]] = []

    async def all(self, name: str, *words: Any) -> None:
        for store in self.stores:
            await getattr(store, name)(*words)

    async def claim(self, asked: Any, number: int) -> list[Claim]:
        """One claim on each, which ends so many runs; the same jobs must start."""
        ends = [self.running.pop(0) for _ in range(min(number, len(self.running)))]
        found = []
        for place, store in enumerate(self.stores):
            finishes = [
                Finish(
                    id=end[place].id, fence=end[place].fence, outcome=Outcome.COMPLETED if index % 3 else Outcome.RETRY
                )
                for index, end in enumerate(ends)
            ]
            found.append(await store.claim(asked, finishes))
        self.running += zip(*(each.jobs for each in found), strict=False)
        assert claimed(found[1]) == claimed(found[0])
        return found


async def change(dice: random.Random, twins: Twins, declared: dict[str, Limit]) -> None:
    """Something happens to a limit, or to a task that may meet one."""
    name = dice.choice(NAMES)
    what = dice.choice(["drop", "drop", "declare", "declare", "override", "lift", "pause", "resume"])
    if what == "drop":
        declared.pop(name, None)
        await twins.all("drop_limit", name)
    elif what == "declare":
        scope = dice.choice(SCOPES)
        old = declared.get(name)
        new = Limit(name, dice.choice(KINDS), **scope)
        if old is None or old.scope == new.scope:
            declared[name] = new
            await twins.all("set_limits", [new])
    elif what in ("pause", "resume"):
        await twins.all("pause", "line", dice.choice("abc"), None, what == "pause")
    elif name in declared:
        group = dice.choice([None, "x"]) if declared[name].by else None
        if what == "override":
            await twins.all("override", Override(limit=name, kind=dice.choice(KINDS), group=group), None)
        elif what == "lift":
            await twins.all("lift", name, group)


@pytest.mark.parametrize("seed", range(8))
async def test_limits_that_come_and_go_leave_every_store_with_the_same_decisions(store, clock, seed):
    dice = random.Random(seed)
    model = open_store("memory://", clock=clock)
    await model.open()
    twins = Twins(model, store)
    declared: dict[str, Limit] = {}
    for _ in range(60):
        if dice.random() < 0.4:
            jobs = [
                a_job(
                    queue=dice.choice(["line", "row"]),
                    task=dice.choice("abc"),
                    group=dice.choice([None, "x", "y"]),
                    cost=dice.choice([1, 1, 1, 1, 2]) if not declared else 1,
                )
                for _ in range(dice.randint(1, 8))
            ]
            await twins.all("insert", jobs)
        if dice.random() < 0.5:
            await change(dice, twins, declared)
        queues = dice.choice([("line",), ("row",), ("line", "row")])
        asked = ask(dice.choice([1, 2, 5]), queues=queues)
        expected, found = await twins.claim(asked, dice.randint(0, 4))
        if dice.random() < 0.5 and expected.ask_again_at < clock.now() + 10 * SECOND:
            # Whoever sleeps for as long as the store said misses nothing.
            clock.to(expected.ask_again_at)
            _, later = await twins.claim(asked, 0)
            assert not later.jobs or found.ask_again_at <= clock.now()
        clock.to(clock.now() + dice.choice([0, 1, 100_000, SECOND, 5 * SECOND]))
    await model.close()
