"""A claim that starts nothing names a later instant: whoever is blocked has no reason to ask again before."""

from __future__ import annotations

import random

import pytest

from paceline.clock import NEVER
from paceline.limits import Concurrency, Delay, EvenlySpaced, Limit, Rate

from .builders import HOUR, SECOND, a_job, add, ask, claim, claimed, declare, ending, opens_exactly_at, start, usage


async def test_a_big_job_under_a_limit_that_it_meets_and_its_worker_brings_along(store, clock):
    await declare(store, "api", Rate(3, per="1h"), queues=["line"])
    await add(store, "small")
    await add(store, "big", cost=3)
    await add(store, "later")
    first = clock.now()
    await start(store, also=("api",))
    clock.advance("1m")

    job = await opens_exactly_at(store, clock, first + HOUR, also=("api",))

    assert job.id == "big"
    assert (await usage(store, "api")).used == 3


async def test_a_big_job_under_a_limit_that_only_its_worker_brings_along(store, clock):
    await declare(store, "shared", Rate(3, per="1h"), queues=["no queue of ours"])
    await add(store, "small")
    await add(store, "big", cost={"shared": 3})
    first = clock.now()
    await start(store, also=("shared",))
    clock.advance("1m")

    job = await opens_exactly_at(store, clock, first + HOUR, also=("shared",))

    assert job.id == "big"


async def test_a_job_that_can_never_start_at_a_worker_hides_no_other(store):
    await declare(store, "shared", Rate(3, per="1h"), queues=["no queue of ours"])
    await add(store, "big", group="a", cost={"shared": 4})
    await add(store, "small", group="b")

    assert claimed(await claim(store, 5, also=("shared",))) == ["small"]
    assert (await claim(store, 5, also=("shared",), lease="1 day")).ask_again_at > HOUR
    assert claimed(await claim(store, 5)) == ["big"]


async def test_room_that_is_kept_under_a_limit_is_kept_from_workers_that_bring_it_along(store, clock):
    await declare(store, "api", Rate(3, per="1h"), queues=["one"])
    await add(store, "small", "big", queue="one", cost=2)
    await add(store, "other", queue="two")
    first = clock.now()
    await start(store, queues=["one"])
    clock.advance("1m")
    assert claimed(await claim(store, queues=["one"])) == []

    refused = await claim(store, queues=["two"], also=("api",))

    assert (claimed(refused), refused.ask_again_at) == ([], first + HOUR)


async def test_a_slot_that_is_missing_under_a_limit_that_a_worker_brings_along_is_awaited(store):
    await declare(store, "shared", Concurrency(1), queues=["no queue of ours"])
    await add(store, "a", "b")
    await start(store, also=("shared",))

    assert (await claim(store, also=("shared",), worker="other")).ask_again_at < NEVER  # the end of the lease
    assert claimed(await claim(store, also=("shared",), worker="other")) == []


@pytest.mark.parametrize("seed", range(8))
async def test_a_claim_that_starts_nothing_is_not_to_be_asked_again_at_once(store, clock, seed):
    dice = random.Random(seed)
    queues = ["one", "two"]
    await store.set_limits(
        [
            Limit("all", dice.choice([Rate(6, per="10s"), EvenlySpaced(10, per="10s"), Delay("1s")])),
            Limit("tokens", Rate(9, per="20s") & Concurrency(4), tasks=["send"]),
            Limit("tenant", Rate(4, per="15s") & Concurrency(2), by="group"),
            Limit("shared", Rate(5, per="10s") & Concurrency(3), queues=["no queue of ours"]),
        ]
    )
    brought = [(), (), ("shared",), ("all",), ("tokens", "shared")]
    running = []

    for step in range(120):
        clock.to(clock.now() + dice.choice([0, 1, SECOND // 3, SECOND, 4 * SECOND]))
        cost = dice.choice([1, 1, 2, 4, {"tokens": 7}, {"shared": 4}, {"shared": 6}, {"tokens": 8, "tenant": 3}])
        job = a_job(
            queue=dice.choice(queues),
            task=dice.choice(["send", "push"]),
            group=dice.choice([None, "a", "b"]),
            cost=cost,
        )
        await store.insert([job])
        if dice.random() < 0.1:
            await store.pause(dice.choice(queues), dice.choice([None, "send"]), None, dice.random() < 0.5)
        wanted = {"queues": dice.sample(queues, dice.randint(1, 2)), "also": dice.choice(brought)}
        if dice.random() < 0.3:
            wanted |= {"room": dice.randint(1, 5), "most": 5}
        for again in range(12):
            answer = await store.claim(ask(dice.randint(1, 3), worker=f"worker {step} {again}", **wanted))
            running += answer.jobs
            if answer.needs_room or answer.ask_again_at > clock.now():
                break
        else:
            raise AssertionError(f"step {step}: asked in a loop, {answer}, {wanted}")
        ended = [running.pop(dice.randrange(len(running))) for _ in range(dice.randint(0, min(2, len(running))))]
        assert await store.finish([ending(each) for each in ended]) == []
