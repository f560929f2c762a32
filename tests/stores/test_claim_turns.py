"""Step 2, claim: whose turn it is among groups, however many there are and whatever blocks them."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from paceline.limits import Concurrency, Limit, Rate, Unlimited

from .builders import (
    a_job,
    add,
    claim,
    claimed,
    complete,
    declare,
    groups_of,
    hold,
    most_starts_between,
    start,
)


async def add_groups(store, groups, number, **changes) -> None:
    """The same number of jobs for each group, group after group."""
    await store.insert([a_job(group=group, **changes) for group in groups for _ in range(number)])


# plain turns


async def test_groups_start_in_turn(store):
    await add(store, "a1", "a2", "a3", group="a")
    await add(store, "b1", "b2", "b3", group="b")

    assert claimed(await claim(store, 6)) == ["a1", "b1", "a2", "b2", "a3", "b3"]


async def test_turns_go_on_over_single_claims(store):
    await add(store, "a1", "a2", "a3", group="a")
    await add(store, "b1", "b2", "b3", group="b")

    ids = [claimed(await claim(store, worker=f"worker {number}")) for number in range(6)]

    assert ids == [["a1"], ["b1"], ["a2"], ["b2"], ["a3"], ["b3"]]


async def test_a_claim_takes_from_its_queues_in_turn_and_names_the_jobs_in_that_order(store):
    await add(store, "a1", "a2", "a3", queue="a")
    await add(store, "c1", "c2", "c3", queue="c")
    await declare(store, "service", Rate(3, per="1m"))

    assert claimed(await claim(store, 5, queues=["a", "empty", "c"])) == ["a1", "c1", "a2"]


async def test_jobs_without_a_group_are_one_group(store):
    await add(store, "none 1", "none 2", "none 3")
    await add(store, "a1", "a2", group="a")

    assert claimed(await claim(store, 5)) == ["none 1", "a1", "none 2", "a2", "none 3"]


async def test_priority_decides_inside_a_group_and_not_between_groups(store):
    await add(store, "b later", group="b", priority=100)
    await add(store, "a1", "a2", group="a", priority=-5)
    await add(store, "b sooner", group="b", priority=50)

    assert claimed(await claim(store, 4)) == ["b sooner", "a1", "b later", "a2"]


async def test_each_queue_has_turns_of_its_own(store):
    await add_groups(store, ["a"], 50, queue="one")
    await start(store, 50, queues=["one"])

    await add(store, "a", group="a", queue="two")
    await add(store, "b", group="b", queue="two")

    assert claimed(await claim(store, 2, queues=["two"])) == ["a", "b"]


async def test_a_group_that_has_nothing_more_leaves_its_turns_to_the_others(store):
    await add_groups(store, ["a"], 1)
    await add_groups(store, ["b", "c"], 3)

    assert groups_of(await start(store, 7)) == ["a", "b", "c", "b", "c", "b", "c"]


async def test_a_group_that_arrives_goes_behind_everyone_who_waits(store):
    await add_groups(store, ["a", "b", "c"], 5)
    await start(store, 3)

    await add_groups(store, ["new"], 5)

    assert groups_of(await start(store, 8)) == ["a", "b", "c", "new", "a", "b", "c", "new"]


async def test_a_group_that_always_adds_one_more_job_gets_no_more_than_its_turn(store):
    await add_groups(store, ["patient"], 50)
    await add_groups(store, ["busy"], 1)

    order = []
    for _ in range(40):
        order += groups_of(await start(store))
        if order[-1] == "busy":
            await add_groups(store, ["busy"], 1)

    assert order == ["patient", "busy"] * 20


async def test_a_group_that_was_alone_for_long_is_not_made_to_pay_for_it(store):
    await add_groups(store, ["old"], 600)
    await start(store, 500)

    await add_groups(store, ["new"], 100)

    order = groups_of(await start(store, 100))
    assert Counter(order) == {"old": 50, "new": 50}
    assert most_starts_between(order, "old") == 1


async def test_a_group_that_was_away_has_saved_no_turns(store):
    await add_groups(store, ["away", "here"], 1)
    await add_groups(store, ["here"], 500)
    await start(store, 200)

    await add_groups(store, ["away"], 100)

    assert most_starts_between(groups_of(await start(store, 100)), "here") == 1


async def test_a_delayed_job_joins_when_it_is_due(store, clock):
    await add(store, "delayed", group="delayed", delay="1s")
    await add_groups(store, ["a", "b"], 5)
    await start(store, 4)

    clock.advance("1s")

    assert groups_of(await start(store, 3)) == ["a", "b", "delayed"]


async def test_a_job_that_costs_more_takes_a_longer_turn(store):
    await add_groups(store, ["big"], 10, cost=3)
    await add_groups(store, ["small"], 30)

    order = groups_of(await start(store, 40))

    places = [place for place, group in enumerate(order) if group == "big"]
    assert {second - first for first, second in pairwise(places)} == {4}


async def test_a_group_pays_a_turn_for_each_job_that_one_claim_starts(store):
    await add(store, "costly", group="paid", cost=10)
    await complete(store, await start(store))
    await add_groups(store, ["alone"], 20)
    await start(store, 9)

    await add_groups(store, ["paid"], 5)

    assert groups_of(await start(store, 6)) == ["alone", "paid"] * 3


async def test_a_group_pays_for_all_starts_of_a_claim_while_another_is_held(store):
    await declare(store, "tenant", Rate(1000, "1h"), by="group")
    await add(store, "costly", group="paid", cost=8)
    await complete(store, await start(store))
    await add_groups(store, ["paid"], 3)
    await hold(store, "tenant", group="paid", for_="1h")
    await add_groups(store, ["alone"], 20)
    assert groups_of(await start(store, 8)) == ["alone"] * 8

    await store.release("tenant", "paid")

    assert groups_of(await start(store)) == ["paid"]


async def test_a_group_that_comes_back_keeps_the_turns_it_has_paid(store):
    await add(store, "costly", group="paid", cost=10)
    await complete(store, await start(store))
    await add_groups(store, ["other"], 4)
    await start(store)

    await add(store, "again", group="paid")

    assert groups_of(await start(store, 4)) == ["other"] * 3 + ["paid"]


async def test_groups_of_tasks_under_different_limits_start_in_the_order_they_came(store):
    await declare(store, "mail", Rate(100, per="1s"), tasks=["mail"])
    for group, task in [("a", "mail"), ("b", "work"), ("c", "work"), ("d", "mail"), ("e", "work")]:
        await store.insert([a_job(group=group, task=task)])

    assert groups_of(await start(store, 5)) == ["a", "b", "c", "d", "e"]


async def test_a_costly_job_that_comes_to_an_idle_queue_takes_a_longer_turn(store):
    for group in ("costly", "plain"):
        await add_groups(store, [group], 1)
        await complete(store, await start(store))
    await add_groups(store, ["costly"], 1, cost=10)
    await complete(store, await start(store))

    await add_groups(store, ["plain", "costly"], 12)

    assert groups_of(await start(store, 10)) == ["plain"] * 9 + ["costly"]


async def test_a_cost_by_limit_takes_a_plain_turn(store):
    await add_groups(store, ["big"], 10, cost={"elsewhere": 9})
    await add_groups(store, ["small"], 10)

    assert groups_of(await start(store, 20)) == ["big", "small"] * 10


# turns and limits


async def test_turns_hold_under_a_shared_concurrency(store):
    await declare(store, "all", Concurrency(1))
    await add_groups(store, ["a", "b", "c"], 3)

    order = []
    for _ in range(9):
        jobs = (await claim(store, 5)).jobs
        order += groups_of(jobs)
        await complete(store, jobs)

    assert order == ["a", "b", "c"] * 3


async def test_turns_hold_under_a_shared_rate(store, clock):
    await declare(store, "all", Rate(2, per="1s"))
    await add_groups(store, ["a", "b", "c"], 4)

    order = []
    for _ in range(6):
        order += groups_of((await claim(store, 5)).jobs)
        clock.advance("1s")

    assert order == ["a", "b", "c"] * 4


async def test_turns_hold_for_a_group_with_tasks_under_different_limits(store):
    await declare(store, "mail", Rate(100, per="1s"), tasks=["mail"])
    await store.insert([a_job(task=task, group="both") for task in ("mail", "work") * 4])
    await add_groups(store, ["mail only"], 8, task="mail")

    assert groups_of(await start(store, 16)) == ["both", "mail only"] * 8


async def test_a_group_that_was_blocked_has_saved_no_turns(store):
    await declare(store, "tenant", Rate(1, per="1h"), by="group", overrides={"free": Unlimited()})
    await add_groups(store, ["blocked", "free"], 300)
    assert Counter(groups_of(await start(store, 201))) == {"blocked": 1, "free": 200}

    await declare(store, "tenant", Unlimited(), by="group")

    order = groups_of(await start(store, 100))
    assert Counter(order) == {"blocked": 50, "free": 50}
    assert most_starts_between(order, "free") == 1


async def test_a_group_that_was_blocked_comes_back_without_waiting_for_a_round_of_arrivals(store, clock):
    await declare(store, "tenant", Rate(1, per="1m"), by="group", overrides={"free": Unlimited()})
    await add_groups(store, ["blocked", "free"], 200)
    assert Counter(groups_of(await start(store, 101))) == {"blocked": 1, "free": 100}

    clock.advance("1m")

    assert "blocked" in groups_of(await start(store, 2))


async def test_a_paused_group_has_saved_no_turns(store):
    await add_groups(store, ["paused", "free"], 300)
    await store.pause("line", None, "paused", True)
    await start(store, 200)

    await store.pause("line", None, "paused", False)

    order = groups_of(await start(store, 100))
    assert Counter(order) == {"paused": 50, "free": 50}
    assert most_starts_between(order, "free") == 1


# the four scenarios of the design


async def test_twenty_jobs_beside_ten_thousand_take_every_second_turn(store):
    await add_groups(store, ["huge"], 10_000)
    await add_groups(store, ["small"], 20)

    order = groups_of(await start(store, 60))

    assert order == ["huge", "small"] * 20 + ["huge"] * 20


async def test_a_thousand_groups_start_once_in_every_round(store):
    names = [f"group {number}" for number in range(1000)]
    await add_groups(store, names, 3)

    rounds = [groups_of(await start(store, 1000)) for _ in range(3)]

    assert rounds == [names, names, names]


async def test_one_fresh_group_per_start_never_passes_an_old_group(store):
    await add_groups(store, ["old"], 100)
    order, arrived = [], {}

    for number in range(500):
        arrived[f"fresh {number}"] = len(order)
        await add_groups(store, [f"fresh {number}"], 1)
        order += groups_of(await start(store))

    places = [place for place, group in enumerate(order) if group == "old"]
    passed = [
        group for first, second in pairwise(places) for group in order[first + 1 : second] if arrived[group] > first
    ]
    assert passed == []
    # Each round is one start longer than the one before: n rounds take n (n + 1) / 2 starts.
    assert len(places) >= 30


async def test_a_class_that_was_closed_for_ten_thousand_starts_comes_back_in_turn(store):
    await declare(store, "mail", Concurrency(1000), tasks=["mail"])
    closed, open_ = [f"closed {number}" for number in range(40)], ["open 1", "open 2"]
    await add_groups(store, closed, 5, task="mail")
    await add_groups(store, open_, 5200)
    await hold(store, "mail", for_="1h")
    for _ in range(10):
        assert set(groups_of(await start(store, 1000))) == set(open_)

    await store.release("mail", None)

    order = groups_of(await start(store, 200))
    assert {group: order.index(group) for group in closed if order.index(group) > 41} == {}
    assert {group: most_starts_between(order, group) for group in [*closed, *open_]} == dict.fromkeys(closed + open_, 1)


async def test_groups_that_arrive_in_a_closed_class_come_back_in_turn(store):
    await declare(store, "mail", Concurrency(1000), tasks=["mail"])
    await hold(store, "mail", for_="1h")
    await add_groups(store, ["open"], 5000)
    for number in range(40):
        await add_groups(store, [f"closed {number}"], 3, task="mail")
        await start(store, 25)

    await store.release("mail", None)

    order = groups_of(await start(store, 123))
    assert Counter(order) == {"open": 3} | {f"closed {number}": 3 for number in range(40)}
    assert most_starts_between(order, "open") == 1


# lanes of one group in many classes


async def test_a_group_takes_one_turn_for_each_start_in_however_many_classes_it_waits(store):
    tasks = [f"task {number}" for number in range(30)]
    for task in tasks:
        await declare(store, f"of {task}", Rate(5, per="1h"), tasks=[task])
    jobs = [a_job(f"{group} {task}", task=task, group=group) for task in tasks for group in "abc"]
    await store.insert(jobs)

    ids = [id for _ in range(30) for id in claimed(await claim(store, 3))]

    assert ids == [job.id for job in jobs]


async def test_the_oldest_job_of_a_group_goes_first_among_its_classes_after_every_start(store):
    for number in range(12):
        await declare(store, f"limit {number}", Rate(5, per="1h"), tasks=[f"task {number}"])
    order = [number * 7 % 12 for number in range(12)]
    await store.insert([a_job(f"{turn} {number}", task=f"task {number}") for turn in range(2) for number in order])
    await add(store, "urgent", task="task 5", priority=-1)

    ids = [id for number in range(13) for id in claimed(await claim(store, 2, worker=f"worker {number}"))]

    assert ids == ["urgent"] + [f"{turn} {number}" for turn in range(2) for number in order]


async def test_a_class_that_is_full_hides_no_other_lane_of_its_groups(store, clock):
    await declare(store, "narrow", Rate(1, per="1m"), tasks=["narrow"])
    await add_groups(store, "abcd", 2, task="narrow")
    await add_groups(store, "abcd", 2, task="wide")

    first = (await claim(store, 20)).jobs
    clock.advance("1m")
    then = (await claim(store, 20)).jobs

    assert [job.task for job in first].count("narrow") == 1
    assert len(first) == 9
    assert [(job.task, job.group) for job in then] == [("narrow", "b")]


async def test_a_job_that_joins_a_lane_goes_before_the_heads_of_other_classes(store):
    await declare(store, "limit a", Rate(9, per="1h"), tasks=["a"])
    await declare(store, "limit b", Rate(9, per="1h"), tasks=["b"])
    await store.insert([a_job("a1", task="a"), a_job("b1", task="b"), a_job("a2", task="a")])
    started = [claimed(await claim(store, worker=f"worker {number}")) for number in range(2)]

    await add(store, "first", task="a", priority=-2)
    await add(store, "second", task="b", priority=-1)
    started += [claimed(await claim(store, worker=f"worker {number}")) for number in range(2, 5)]

    assert started == [["a1"], ["b1"], ["first"], ["second"], ["a2"]]


@pytest.mark.parametrize("slots", [1, 7])
async def test_groups_that_wait_in_very_many_classes_start_their_oldest_jobs_in_turn(store, slots):
    tasks = [f"task {number}" for number in range(40)]
    await store.set_limits([Limit(f"of {task}", Rate(50, per="1h"), tasks=[task]) for task in tasks])
    jobs = [a_job(f"{group} {task}", task=task, group=group) for task in tasks for group in "abcdef"]
    random.Random(slots).shuffle(jobs)
    await store.insert(jobs)

    ids = []
    while len(ids) < 60:
        ids += claimed(await claim(store, slots, worker=f"worker {len(ids)}"))

    oldest = {
        group: [job.id for job in jobs if job.group == group] for group in dict.fromkeys(job.group for job in jobs)
    }
    turns = [id for turn in zip(*oldest.values(), strict=True) for id in turn]
    assert ids == turns[: len(ids)]
