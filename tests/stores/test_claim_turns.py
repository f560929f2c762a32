"""Step 2, claim: whose turn it is among groups, however many there are and whatever blocks them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from paceline.limits import Concurrency, Rate, Unlimited

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
    await add_groups(store, ["old"], 1000)
    order, arrived = [], {}

    for number in range(2000):
        arrived[f"fresh {number}"] = len(order)
        await add_groups(store, [f"fresh {number}"], 1)
        order += groups_of(await start(store))

    places = [place for place, group in enumerate(order) if group == "old"]
    passed = [
        group for first, second in pairwise(places) for group in order[first + 1 : second] if arrived[group] > first
    ]
    assert passed == []
    # Each round is one start longer than the one before: n rounds take n (n + 1) / 2 starts.
    assert len(places) >= 60


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
