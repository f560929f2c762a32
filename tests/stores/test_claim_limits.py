"""Step 2, claim: every kind of limit, for everything it can be declared for, to the microsecond."""

from __future__ import annotations

import pytest

from paceline.limits import AllOf, Backoff, Concurrency, Delay, EvenlySpaced, Limit, Rate, Unlimited

from .builders import (
    MINUTE,
    SECOND,
    a_job,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    finish,
    groups_of,
    hold,
    opens_exactly_at,
    read,
    start,
    start_all,
    usage,
)

# each kind


async def test_a_rate_starts_its_maximum_and_not_one_more(store):
    await declare(store, "all", Rate(2, per="1m"))
    await add_many(store, 5)

    assert len((await claim(store, 5)).jobs) == 2
    assert (await store.counts("line"))["waiting"] == 3


async def test_a_rate_is_one_for_all_workers(store):
    await declare(store, "all", Rate(2, per="1m"))
    await add_many(store, 5)

    starts = [len((await claim(store, worker=worker)).jobs) for worker in ("one", "two", "three")]

    assert starts == [1, 1, 0]


async def test_a_rate_opens_exactly_one_window_after_the_start_that_leaves(store, clock):
    await declare(store, "all", Rate(2, per="1m"))
    await add_many(store, 5)
    first = clock.now()
    await start(store)
    clock.advance("50s")
    await start(store)

    await opens_exactly_at(store, clock, first + MINUTE)
    await opens_exactly_at(store, clock, first + MINUTE + 50 * SECOND)


async def test_a_window_slides_and_has_no_border(store, clock):
    await declare(store, "all", Rate(3, per="1s"))
    await add_many(store, 20)
    clock.advance("900ms")
    assert len((await claim(store, 20)).jobs) == 3

    clock.advance("200ms")

    assert claimed(await claim(store, 20)) == []


async def test_the_end_of_a_job_gives_nothing_back_to_a_rate(store, clock):
    await declare(store, "all", Rate(1, per="1m"))
    await add(store, "a", "b")
    await complete(store, await start(store))

    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_a_guard_widens_the_window(store, clock):
    await declare(store, "all", Rate(1, per="1s", guard="100ms"))
    await add(store, "a", "b")
    await start(store)

    await opens_exactly_at(store, clock, clock.now() + 1_100_000)


async def test_a_concurrency_starts_its_maximum_and_the_next_when_one_ends(store):
    await declare(store, "all", Concurrency(2))
    await add(store, "a", "b", "c", "d")
    (job, _) = (await claim(store, 4)).jobs

    refused = claimed(await claim(store, 4))
    await finish(store, job)

    assert (refused, claimed(await claim(store, 4))) == ([], ["c"])


async def test_only_an_end_opens_a_concurrency_so_the_lease_end_is_the_next_instant(store, clock):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", "b")
    await start(store, lease="1h")

    assert (await claim(store)).ask_again_at == clock.now() + 60 * MINUTE


async def test_a_delay_keeps_a_gap_between_starts(store, clock):
    await declare(store, "all", Delay("50ms"))
    await add_many(store, 3)
    first = clock.now()

    assert len((await claim(store, 3)).jobs) == 1
    await opens_exactly_at(store, clock, first + 50_000)
    await opens_exactly_at(store, clock, first + 100_000)


async def test_even_spacing_divides_the_window_without_losing_a_microsecond(store, clock):
    await declare(store, "all", EvenlySpaced(3, per="1s"))
    await add_many(store, 5)
    first = clock.now()

    assert len((await claim(store, 5)).jobs) == 1
    for after in (333_334, 666_667, 1_000_000, 1_333_334):
        await opens_exactly_at(store, clock, first + after)


async def test_even_spacing_counts_from_the_last_start_and_never_catches_up(store, clock):
    await declare(store, "all", EvenlySpaced(10, per="1s"))
    await add_many(store, 9)
    await start(store)
    clock.advance("5s")

    assert len((await claim(store, 9)).jobs) == 1
    await opens_exactly_at(store, clock, clock.now() + 100_000)


@pytest.mark.parametrize("duration", ["1us", "10ms", "499ms"])
async def test_even_spacing_does_not_depend_on_how_long_jobs_take(store, clock, duration):
    await declare(store, "all", EvenlySpaced(2, per="1s"))
    await add_many(store, 2)
    first = clock.now()
    jobs = await start(store)

    clock.advance(duration)
    await complete(store, jobs)

    await opens_exactly_at(store, clock, first + SECOND // 2)


async def test_unlimited_refuses_nobody(store):
    await declare(store, "all", Unlimited())
    await add_many(store, 50)

    assert len((await claim(store, 100)).jobs) == 50


async def test_of_several_kinds_the_latest_opening_wins(store, clock):
    await declare(store, "all", Rate(1, per="1s") & Rate(3, per="10s"))
    await add_many(store, 5)
    first = clock.now()

    await start(store)
    for after in (1, 2, 10, 11):
        await opens_exactly_at(store, clock, first + after * SECOND)


async def test_a_start_that_one_kind_refuses_is_not_counted_by_the_other(store):
    await declare(store, "all", AllOf(Rate(2, per="1h"), Concurrency(1)))
    await add_many(store, 3)
    jobs = await start(store)
    for _ in range(5):
        assert claimed(await claim(store)) == []

    await complete(store, jobs)

    assert len((await claim(store)).jobs) == 1


async def test_a_backlog_uses_all_that_a_rate_allows(store, clock):
    await declare(store, "all", Rate(5, per="1s"))
    await add_many(store, 50)
    first = clock.now()

    starts = []
    while len(starts) < 50:
        answer = await claim(store, 50)
        starts += [job.started_at for job in answer.jobs]
        clock.to(max(answer.ask_again_at, clock.now()) if len(starts) < 50 else clock.now())

    assert starts == [first + second * SECOND for second in range(10) for _ in range(5)]


# what a limit covers


@pytest.mark.parametrize(
    "scope",
    [{}, {"queues": ["line"]}, {"tasks": ["work"]}, {"queues": ["line", "x"], "tasks": ["work", "y"]}],
    ids=["everything", "queue", "task", "both"],
)
async def test_a_limit_covers_the_jobs_of_its_scope(store, scope):
    await declare(store, "it", Rate(2, per="1m"), **scope)
    await add_many(store, 5)

    assert len((await claim(store, 5)).jobs) == 2


@pytest.mark.parametrize(
    "scope",
    [{"queues": ["other"]}, {"tasks": ["other"]}, {"queues": ["line"], "tasks": ["other"]}, {"by": "group"}],
    ids=["queue", "task", "both", "group"],
)
async def test_a_limit_does_not_touch_jobs_outside_its_scope(store, scope):
    await declare(store, "it", Rate(1, per="1m"), **scope)
    await add_many(store, 5)

    assert len((await claim(store, 5)).jobs) == 5


async def test_a_limit_without_a_scope_counts_all_queues_together(store):
    await declare(store, "all", Rate(3, per="1m"))
    await add_many(store, 2, queue="one")
    await add_many(store, 2, queue="two")

    assert len((await claim(store, 5, queues=["one"])).jobs) == 2
    assert len((await claim(store, 5, queues=["two"])).jobs) == 1


async def test_a_limit_for_a_service_counts_all_its_tasks_together_in_all_queues(store):
    await declare(store, "mail", Rate(3, per="1m"), tasks=["send", "digest"])
    await store.insert([a_job(task=task, queue=queue) for task in ("send", "digest") for queue in ("one", "two")])

    assert len((await claim(store, 2, queues=["one"])).jobs) == 2
    assert len((await claim(store, 2, queues=["two"])).jobs) == 1


async def test_each_group_has_a_counter_of_its_own(store, clock):
    await declare(store, "tenant", Rate(2, per="1m"), by="group")
    for group in ("a", "b", "c"):
        await add_many(store, 3, group=group)

    assert sorted(groups_of((await claim(store, 9)).jobs)) == ["a", "a", "b", "b", "c", "c"]
    await opens_exactly_at(store, clock, clock.now() + MINUTE)


async def test_a_limit_per_group_never_applies_to_jobs_without_a_group(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add_many(store, 5)
    await add_many(store, 5, group="acme")

    assert sorted(groups_of((await claim(store, 10)).jobs), key=str) == [None] * 5 + ["acme"]


async def test_a_group_at_its_concurrency_waits_for_an_end(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", "b", "c", group="acme")
    (job,) = (await claim(store, 5)).jobs

    await finish(store, job)

    assert claimed(await claim(store, 5)) == ["b"]


async def test_a_group_may_have_numbers_of_its_own(store):
    await declare(store, "tenant", Rate(1, per="1m"), by="group", overrides={"big": Rate(3, per="1m")})
    for group in ("big", "small"):
        await add_many(store, 5, group=group)

    groups = groups_of((await claim(store, 10)).jobs)

    assert (groups.count("big"), groups.count("small")) == (3, 1)


async def test_a_group_may_be_free_of_a_limit(store):
    await declare(store, "tenant", Concurrency(1), by="group", overrides={"vip": Unlimited()})
    for group in ("vip", "small"):
        await add_many(store, 5, group=group)

    groups = groups_of((await claim(store, 10)).jobs)

    assert (groups.count("vip"), groups.count("small")) == (5, 1)


async def test_a_rate_per_group_counts_a_group_in_all_queues_together(store, clock):
    await declare(store, "tenant", Rate(2, per="1m"), by="group")
    await add_many(store, 2, queue="one", group="acme")
    await add_many(store, 2, queue="two", group="acme")
    await start(store, queues=["one"])
    clock.advance("10s")
    await start(store, queues=["two"])

    assert claimed(await claim(store, 5, queues=["one", "two"])) == []
    await opens_exactly_at(store, clock, clock.now() + 50 * SECOND, queues=["two"])


async def test_the_starts_of_a_group_count_for_every_handle(store, clock, handle):
    await declare(store, "tenant", Rate(1, per="1m") & Concurrency(5), by="group")
    await add_many(store, 2, group="acme")
    await start(store)

    async with handle() as other:
        await opens_exactly_at(other, clock, clock.now() + MINUTE)


async def test_an_end_in_one_queue_lets_the_group_start_in_another(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", queue="one", group="acme")
    await add(store, "b", queue="two", group="acme")
    (job,) = await start(store, queues=["one"])
    assert claimed(await claim(store, queues=["two"])) == []

    await finish(store, job)

    assert claimed(await claim(store, queues=["two"])) == ["b"]


# several limits at once


async def test_a_job_starts_only_if_all_its_limits_admit_it(store):
    await declare(store, "queue", Rate(5, per="1m"), queues=["line"])
    await declare(store, "mail", Rate(3, per="1m"), tasks=["work"])
    await declare(store, "tenant", Rate(2, per="1m"), by="group")
    await add_many(store, 4, group="a")
    await add_many(store, 4, group="b")

    groups = groups_of((await claim(store, 8)).jobs)

    assert groups == ["a", "b", "a"]


async def test_a_refused_job_is_charged_to_none_of_its_limits(store):
    await declare(store, "open", Rate(2, per="1h"))
    await declare(store, "full", Concurrency(1), tasks=["slow"])
    await add(store, "running", "refused", task="slow")
    await start(store)
    for _ in range(10):
        assert claimed(await claim(store, 5)) == []

    await add(store, "other", task="quick")

    assert (await usage(store, "open")).used == 1
    assert claimed(await claim(store, 5)) == ["other"]


async def test_a_job_that_its_group_refuses_is_not_charged_to_shared_limits(store):
    await declare(store, "all", Rate(3, per="1h"))
    await declare(store, "tenant", Rate(1, per="1h"), by="group")
    await add_many(store, 5, group="a")
    await start(store)
    assert claimed(await claim(store, 5)) == []

    await add_many(store, 1, group="b")
    await add_many(store, 1, group="c")

    assert groups_of((await claim(store, 5)).jobs) == ["b", "c"]


async def test_a_job_whose_group_is_held_is_not_charged_to_shared_limits(store):
    await declare(store, "all", Rate(10, per="1m"))
    await declare(store, "tenant", Rate(10, per="1m"), by="group")
    await hold(store, "tenant", group="held", for_="1h")
    await add_many(store, 3, group="held")
    await add_many(store, 3, group="free")

    assert groups_of((await claim(store, 9)).jobs) == ["free"] * 3

    assert (await usage(store, "all")).used == 3


@pytest.mark.parametrize(("queue", "task", "group"), [(10, 20, 40), (40, 10, 20), (20, 40, 10)])
async def test_the_latest_of_all_limits_says_when_to_ask_again(store, clock, queue, task, group):
    await declare(store, "queue", Rate(1, per=queue), queues=["line"])
    await declare(store, "mail", Delay(task), tasks=["work"])
    await declare(store, "tenant", Rate(1, per=group), by="group")
    await add_many(store, 2, group="a")
    await start(store)

    await opens_exactly_at(store, clock, clock.now() + 40 * SECOND)


async def test_the_earliest_job_says_when_to_ask_again(store, clock):
    await declare(store, "slow", Rate(1, per="40s"), tasks=["slow"])
    await declare(store, "quick", Rate(1, per="10s"), tasks=["quick"])
    await add_many(store, 2, task="slow")
    await add_many(store, 2, task="quick")
    await start(store, 2)

    job = await opens_exactly_at(store, clock, clock.now() + 10 * SECOND)

    assert job.task == "quick"


async def test_a_claim_may_name_a_limit_that_all_its_starts_meet(store, clock):
    await declare(store, "shared", Rate(2, per="1m"), queues=["no queue of ours"])
    await add_many(store, 5)

    assert len((await claim(store, 5, worker="one", also=("shared",))).jobs) == 2
    await opens_exactly_at(store, clock, clock.now() + MINUTE, worker="two", also=("shared",))


async def test_a_claim_that_does_not_name_the_limit_is_free_of_it(store):
    await declare(store, "shared", Concurrency(1), queues=["no queue of ours"])
    await add_many(store, 5)
    await start(store, also=("shared",))

    assert claimed(await claim(store, 5, also=("shared",))) == []
    assert len((await claim(store, 5)).jobs) == 4


async def test_a_named_limit_that_the_job_meets_anyway_is_charged_once(store):
    await declare(store, "all", Rate(4, per="1m"))
    await add_many(store, 5)

    assert len((await claim(store, 5, also=("all",))).jobs) == 4
    assert (await usage(store, "all")).used == 4


# waiting is free, and hides nobody


async def test_waiting_for_a_limit_changes_nothing_of_the_job(store, clock):
    await declare(store, "all", Rate(1, per="1h"))
    await add(store, "a", "b")
    await start(store)
    before = await read(store, "b")

    for _ in range(20):
        clock.advance("1m")
        await claim(store, 5)

    assert await read(store, "b") == before
    assert len(await store.starts("line", None)) == 1


async def test_a_full_task_hides_no_other_task_at_any_depth(store):
    await declare(store, "slow", Concurrency(1), tasks=["slow"])
    await add_many(store, 5000, task="slow", priority=-1)
    await start(store)

    await add(store, "quick", task="quick")

    assert claimed(await claim(store, 2)) == ["quick"]


async def test_a_full_group_hides_no_other_group_at_any_depth(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add_many(store, 5000, group="greedy", priority=-1)
    await start(store)

    await add(store, "modest", group="modest")

    assert claimed(await claim(store, 2)) == ["modest"]


async def test_thousands_of_full_groups_hide_nobody(store):
    await declare(store, "tenant", Rate(1, per="1h"), by="group")
    await store.insert([a_job(group=f"group {number % 2000}") for number in range(4000)])
    assert len(await start_all(store, 500)) == 2000

    await add(store, "fresh", group="fresh")

    assert claimed(await claim(store)) == ["fresh"]


async def test_a_full_task_does_not_hide_the_other_tasks_of_its_group(store):
    await declare(store, "slow", Concurrency(1), tasks=["slow"])
    await add(store, "a", "b", task="slow", group="acme")
    await add(store, "c", task="quick", group="acme")

    assert claimed(await claim(store, 5)) == ["a", "c"]


async def test_limits_are_given_back_as_they_were_declared(store):
    limits = [
        Limit("all", Rate(100, per="1m", guard="5ms") & Concurrency(5)),
        Limit(
            "mail", EvenlySpaced(7, per="60s"), tasks=["send", "digest"], queues=["one"], backoff=Backoff("2s", 3, "1h")
        ),
        Limit("tenant", Delay("50ms"), by="group", overrides={"vip": Unlimited(), "big": Rate(9, per="1s")}),
    ]

    assert await store.set_limits(limits) == []

    assert sorted(await store.limits(), key=lambda limit: limit.name) == limits
