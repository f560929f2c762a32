"""What stays in a store and for how long; and who works on it."""

from __future__ import annotations

import pytest

from paceline.job import JobState
from paceline.limits import Concurrency, Delay, EvenlySpaced, Rate
from paceline.stores.interface import WorkerRecord

from .builders import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    a_job_in,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    groups_of,
    hold,
    opens_exactly_at,
    read,
    start,
    usage,
)

# prune


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
async def test_a_finished_job_is_removed_after_its_time(store, clock, state):
    await a_job_in(store, state, keep="1h")
    clock.to(clock.now() + HOUR - 1)
    before = await store.prune()

    clock.to(clock.now() + 2)

    assert (before, await store.prune()) == (0, 1)
    assert await store.get(["a"]) == []
    assert (await store.counts("line"))[state] == 0


async def test_the_time_of_a_finished_job_counts_from_its_end(store, clock):
    job = await a_job_in(store, JobState.ACTIVE, keep="1h")
    clock.advance("5h")
    await complete(store, [job])

    assert await store.prune() == 0


async def test_a_job_without_a_time_is_kept_for_ever(store, clock):
    await a_job_in(store, JobState.COMPLETED, keep=None)

    clock.to(clock.now() + 4000 * DAY)

    assert (await store.prune(), (await read(store, "a")).state) == (0, JobState.COMPLETED)


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.ACTIVE])
async def test_a_job_that_has_not_ended_is_never_removed(store, clock, state):
    await a_job_in(store, state, keep="1s")

    clock.to(clock.now() + 400 * DAY)

    assert (await store.prune(), len(await store.get(["a"]))) == (0, 1)


async def test_jobs_of_all_queues_are_removed(store, clock):
    for queue in ("one", "two"):
        await a_job_in(store, JobState.COMPLETED, queue, queue=queue, keep="1s")

    clock.advance("2s")

    assert await store.prune() == 2


@pytest.mark.parametrize(
    ("kind", "opens_after"),
    [
        (Rate(1, per="1h"), HOUR),
        (Delay("1h"), HOUR),
        (EvenlySpaced(2, per="2h"), HOUR),
    ],
    ids=repr,
)
async def test_pruning_forgets_no_start_of_an_idle_group_that_still_counts(store, clock, kind, opens_after):
    await declare(store, "tenant", kind, by="group")
    first = clock.now()
    await add(store, "a", group="acme", keep=0)
    await complete(store, await start(store))
    clock.advance("50m")

    await store.prune()

    await add(store, "b", group="acme")
    await opens_exactly_at(store, clock, first + opens_after)


async def test_pruning_forgets_no_hold_of_an_idle_group(store, clock):
    await declare(store, "tenant", Concurrency(5), by="group")
    await hold(store, "tenant", group="acme", for_="1h")

    await store.prune()

    await add(store, "a", group="acme")
    await opens_exactly_at(store, clock, clock.now() + HOUR)


async def test_pruning_forgets_no_refusal_of_an_idle_group(store, clock):
    await declare(store, "tenant", Concurrency(5), by="group")
    for _ in range(3):
        await hold(store, "tenant", group="acme")
    clock.advance("1h")

    await store.prune()

    await hold(store, "tenant", group="acme")
    assert (await usage(store, "tenant", "acme")).hold_until == clock.now() + 8 * SECOND


async def test_pruning_forgets_no_lease(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", "b", group="acme")
    await start(store)

    await store.prune()

    assert claimed(await claim(store)) == []


async def test_pruning_gives_no_group_a_better_turn(store):
    await add_many(store, 3, group="ahead", cost=10)
    await add_many(store, 30, group="behind")
    await start(store, 4)
    await store.drain("line")
    await store.prune()

    await add_many(store, 3, group="ahead")
    await add_many(store, 3, group="behind")

    order = groups_of(await start(store, 4))
    assert order.index("behind") < order.index("ahead")


async def test_starts_that_no_limit_counts_any_more_are_kept_to_look_at(store, clock):
    await declare(store, "api", Rate(5, per="1s"))
    await add(store, "a", "b")
    await start(store)
    clock.advance("3h")
    await start(store)

    await store.prune()

    assert [each.job_id for each in await store.starts("line", None)] == ["a", "b"]


async def test_the_log_of_starts_is_kept_for_the_longest_window(store, clock):
    await declare(store, "tenant", Rate(5, per="1m"), by="group", overrides={"slow": Rate(5, per="6h")})
    await add(store, "a", keep=0)
    await complete(store, await start(store))
    clock.to(clock.now() + 6 * HOUR - 1)

    await store.prune()

    assert [each.job_id for each in await store.starts("line", None)] == ["a"]


async def test_pruning_twice_removes_nothing_more(store, clock):
    await a_job_in(store, JobState.COMPLETED, keep="1s")
    clock.advance("2s")

    assert [await store.prune(), await store.prune()] == [1, 0]


# workers


async def test_a_registered_worker_is_listed_until_it_is_gone(store, clock):
    await store.register(WorkerRecord(id="one", queues=("line", "other"), tasks=frozenset(["mail", "bill"])))
    await store.register(WorkerRecord(id="two", queues=("line",)))
    before = {each.id: each for each in await store.workers()}

    await store.unregister("one")

    assert before["one"] == WorkerRecord(
        id="one", queues=("line", "other"), tasks=frozenset(["mail", "bill"]), seen_at=clock.now()
    )
    assert (before["two"].tasks, [each.id for each in await store.workers()]) == (None, ["two"])


async def test_a_worker_that_registers_again_replaces_itself(store, clock):
    await store.register(WorkerRecord(id="one", queues=("line",)))
    clock.advance("1m")

    await store.register(WorkerRecord(id="one", queues=("other",)))

    assert [(each.queues, each.seen_at) for each in await store.workers()] == [(("other",), clock.now())]


async def test_unregistering_a_worker_that_nobody_knows_is_no_error(store):
    await store.unregister("nobody")

    assert await store.workers() == []


async def test_the_jobs_of_a_worker_that_is_gone_stay_leased(store, clock):
    await store.register(WorkerRecord(id="one", queues=("line",)))
    await add(store, "a")
    (job,) = await start(store, worker="one", lease="1m")

    await store.unregister("one")

    assert claimed(await claim(store, worker="two")) == []
    await complete(store, [job])
    assert (await read(store, "a")).finished_at == clock.now() < clock.now() + MINUTE
