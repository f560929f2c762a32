"""Step 2, claim: which job is next, what a start writes down, and when to ask again."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Outcome

from .builders import (
    SECOND,
    a_job,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    ending,
    finish,
    opens_exactly_at,
    read,
    start,
    start_all,
    state_of,
    usage,
)

# order


async def test_jobs_start_in_the_order_they_were_added(store):
    await add(store, "a", "b")
    await add(store, "c")

    assert [claimed(await claim(store)) for _ in range(3)] == [["a"], ["b"], ["c"]]


async def test_one_claim_starts_jobs_in_the_same_order_as_many(store):
    await add(store, "a", "b", "c")

    assert claimed(await claim(store, 3)) == ["a", "b", "c"]


async def test_a_lower_priority_number_goes_first(store):
    await add(store, "later", priority=10)
    await add(store, "sooner", priority=1)
    await add(store, "plain")

    assert claimed(await claim(store, 3)) == ["plain", "sooner", "later"]


async def test_a_negative_priority_goes_before_zero(store):
    await add(store, "plain")
    await add(store, "urgent", priority=-1)
    await add(store, "most urgent", priority=-20)

    assert claimed(await claim(store, 3)) == ["most urgent", "urgent", "plain"]


async def test_equal_priorities_start_in_the_order_they_were_added(store):
    await add(store, "a", "b", "c", priority=5)

    assert claimed(await claim(store, 3)) == ["a", "b", "c"]


async def test_the_last_lifo_job_goes_first(store):
    await add(store, "old")
    await add(store, "new", "newest", lifo=True)

    assert claimed(await claim(store, 3)) == ["newest", "new", "old"]


async def test_priority_beats_lifo(store):
    await add(store, "urgent", priority=-1)
    await add(store, "newest", lifo=True)

    assert claimed(await claim(store, 2)) == ["urgent", "newest"]


async def test_a_job_that_joins_others_takes_its_own_place(store):
    await add(store, "first", "second", "third")
    assert claimed(await claim(store)) == ["first"]

    for id, options in [("last in", {"lifo": True}), ("urgent", {"priority": -1}), ("late", {"priority": 1})]:
        await add(store, id, **options)
    assert claimed(await claim(store, 2)) == ["urgent", "last in"]
    await add(store, "urgent too", priority=-1)

    assert claimed(await claim(store, 4)) == ["urgent too", "second", "third", "late"]


async def test_priority_decides_between_tasks_that_meet_different_limits(store):
    await declare(store, "mail", Rate(100, per="1s"), tasks=["send"])
    await add(store, "later", task="send", priority=5)
    await add(store, "sooner", task="work", priority=0)
    await add(store, "soonest", task="send", priority=-5)

    assert claimed(await claim(store, 3)) == ["soonest", "sooner", "later"]


async def test_a_queue_without_groups_is_first_in_first_out_whatever_limits_its_tasks_meet(store):
    await declare(store, "mail", Rate(100, per="1s"), tasks=["send"])
    await declare(store, "bills", Concurrency(100), tasks=["bill"])
    tasks = ["work", "send", "bill", "send", "work", "bill"]
    await store.insert([a_job(f"{place} {task}", task=task) for place, task in enumerate(tasks)])

    assert claimed(await claim(store, 6)) == [f"{place} {task}" for place, task in enumerate(tasks)]


async def test_priority_decides_inside_a_group_between_tasks_that_meet_different_limits(store):
    await declare(store, "mail", Rate(100, per="1s"), tasks=["send"])
    await add(store, "later", task="send", priority=5, group="acme")
    await add(store, "sooner", task="work", priority=0, group="acme")

    assert claimed(await claim(store)) == ["sooner"]


async def test_a_delayed_job_takes_its_own_place_once_it_is_due(store, clock):
    await add(store, "delayed", delay="5s")
    await add(store, "later")

    clock.advance("5s")

    assert claimed(await claim(store, 2)) == ["delayed", "later"]


async def test_delayed_jobs_of_one_instant_start_by_priority_and_order(store, clock):
    await add(store, "a", "b", delay="5s")
    await add(store, "urgent", delay="5s", priority=-1)

    clock.advance("5s")

    assert claimed(await claim(store, 3)) == ["urgent", "a", "b"]


# what a start writes down


async def test_a_start_makes_the_job_active_at_the_time_of_the_store(store, clock):
    await add(store, "a")
    clock.advance("3s")

    answer = await claim(store, worker="anna")

    (job,) = answer.jobs
    assert (job.state, job.worker, job.started_at, job.attempts_made) == (JobState.ACTIVE, "anna", clock.now(), 1)
    assert (answer.now, job.fence > 0) == (clock.now(), True)
    assert await read(store, "a") == job


async def test_an_active_job_is_not_given_again(store):
    await add(store, "a")
    await start(store)

    assert claimed(await claim(store, worker="other")) == []


async def test_a_claim_gives_as_many_jobs_as_there_are_slots(store):
    await add_many(store, 5)

    assert len((await claim(store, 3)).jobs) == 3
    assert (await store.counts("line"))["waiting"] == 2


async def test_a_claim_with_more_slots_than_jobs_gives_them_all(store):
    ids = await add_many(store, 3)

    assert claimed(await claim(store, 100)) == ids


async def test_without_limits_nothing_is_refused(store):
    ids = await add_many(store, 5)

    assert [claimed(await claim(store)) for _ in range(5)] == [[id] for id in ids]


async def test_each_start_of_a_job_has_a_higher_fence(store):
    await add(store, "a")

    fences = []
    for _ in range(3):
        (job,) = await start(store)
        fences.append(job.fence)
        await finish(store, job, Outcome.RELEASED)

    assert fences == sorted(set(fences))


# when to ask again


async def test_an_empty_store_has_nothing_to_ask_again_for(store, clock):
    answer = await claim(store)

    assert (answer.jobs, answer.now, answer.ask_again_at) == ([], clock.now(), NEVER)


async def test_a_delayed_job_starts_exactly_when_it_is_due(store, clock):
    await add(store, "a", delay="250ms")

    job = await opens_exactly_at(store, clock, clock.now() + 250_000)

    assert job.id == "a"


async def test_the_first_of_several_delays_says_when_to_ask_again(store, clock):
    await add(store, "late", delay="10s")
    await add(store, "soon", delay="5s")

    assert (await claim(store)).ask_again_at == clock.now() + 5 * SECOND


async def test_a_claim_that_still_has_slots_names_the_next_delay(store, clock):
    await add(store, "a")
    await add(store, "b", delay="5s")

    answer = await claim(store, 2)

    assert (claimed(answer), answer.ask_again_at) == (["a"], clock.now() + 5 * SECOND)


async def test_time_stands_still_for_the_store_rather_than_go_back(store, clock):
    await declare(store, "all", Rate(1, per="1m"))
    await add(store, "a", "b")
    (job,) = await start(store)

    clock.step_back("1h")
    answer = await claim(store)

    assert (claimed(answer), answer.now, answer.ask_again_at) == ([], job.started_at, job.started_at + 60 * SECOND)


async def test_time_stands_still_where_nothing_is_limited(store, clock):
    await add(store, "a", "b", "c")
    (first,) = await start(store)

    clock.step_back("1h")

    assert [(job.id, job.started_at) for job in await start(store, 2)] == [
        ("b", first.started_at),
        ("c", first.started_at),
    ]


# finishes sent along


async def test_a_finish_sent_along_frees_the_slot_for_the_same_claim(store):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", "b")
    (job,) = await start(store)

    answer = await claim(store, finishes=[ending(job)])

    assert (claimed(answer), answer.lost) == (["b"], [])
    assert await state_of(store, "a") == JobState.COMPLETED


async def test_a_claim_names_the_finishes_that_came_too_late(store):
    await add(store, "a", "b")
    (job, other) = await start(store, 2)
    await finish(store, job)

    answer = await claim(store, finishes=[ending(job), ending(other)])

    assert answer.lost == ["a"]
    assert await state_of(store, "b") == JobState.COMPLETED


# replay


async def test_a_claim_asked_again_gives_the_same_jobs_and_starts_nothing(store):
    await add(store, "a", "b", "c")
    first = await claim(store, 2, claim_id="one")

    again = await claim(store, 2, claim_id="one")

    assert again.jobs == first.jobs
    assert await state_of(store, "c") == JobState.WAITING


async def test_a_claim_asked_again_is_charged_once(store):
    await declare(store, "all", Rate(10, per="1h"))
    await add(store, "a", "b", "c")
    await claim(store, 2, claim_id="one")

    await claim(store, 2, claim_id="one")

    assert (await usage(store, "all")).used == 2
    assert len(await store.starts("line", None)) == 2


async def test_a_claim_asked_again_leaves_out_what_has_ended(store):
    await add(store, "a", "b")
    (job, other) = (await claim(store, 2, claim_id="one")).jobs
    await finish(store, job)

    assert (await claim(store, 2, claim_id="one")).jobs == [other]


async def test_a_claim_asked_again_leaves_out_a_job_that_was_started_anew(store):
    await add(store, "a")
    (job,) = (await claim(store, claim_id="one", worker="first")).jobs
    await finish(store, job, Outcome.RELEASED)
    await start(store, worker="second")

    assert claimed(await claim(store, claim_id="one", worker="first")) == []


async def test_a_claim_asked_again_does_not_call_its_own_finishes_lost(store):
    await add(store, "a", "b")
    (job,) = await start(store)
    first = await claim(store, claim_id="two", finishes=[ending(job)])

    again = await claim(store, claim_id="two", finishes=[ending(job)])

    assert (again.jobs, again.lost) == (first.jobs, [])


async def test_a_claim_for_no_slots_writes_the_ends_and_starts_nothing(store):
    await add(store, "a", "b")
    (job,) = await start(store)

    nothing = await claim(store, 0, claim_id="one", finishes=[ending(job)])

    assert (nothing.jobs, nothing.lost) == ([], [])
    assert [await state_of(store, name) for name in "ab"] == [JobState.COMPLETED, JobState.WAITING]


async def test_a_claim_asked_again_for_no_slots_gives_what_it_started(store):
    await add(store, "a", "b", "c")
    first = await claim(store, 2, claim_id="one")

    assert (await claim(store, 0, claim_id="one")).jobs == first.jobs


async def test_another_claim_id_is_another_claim(store):
    await add(store, "a", "b")
    await claim(store, claim_id="one")

    assert claimed(await claim(store, claim_id="two")) == ["b"]


async def test_a_claim_id_of_another_worker_is_another_claim(store):
    await add(store, "a", "b")
    await claim(store, claim_id="one", worker="first")

    assert claimed(await claim(store, claim_id="one", worker="second")) == ["b"]


async def test_only_the_latest_claim_of_a_worker_is_remembered(store):
    await add(store, "a", "b", "c")
    await claim(store, claim_id="one")
    await claim(store, claim_id="two")

    assert claimed(await claim(store, claim_id="one")) == ["c"]


async def test_claims_without_an_id_are_never_replayed(store):
    await add(store, "a", "b")
    await claim(store)

    assert claimed(await claim(store)) == ["b"]


# a worker's own limiter


async def test_a_claim_stops_at_the_room_of_the_worker(store):
    await add_many(store, 5)

    assert len((await claim(store, 5, room=2)).jobs) == 2


async def test_a_claim_without_room_says_what_the_next_job_needs(store):
    await add(store, "a", "b", cost=2)

    answer = await claim(store, 5, room=3)

    assert (claimed(answer), answer.needs_room) == (["a"], 2)


async def test_a_cost_by_limit_takes_one_of_the_worker_s_room(store):
    await add(store, "a", "b", "c", cost={"elsewhere": 9})

    assert claimed(await claim(store, 5, room=2)) == ["a", "b"]


async def test_a_job_that_is_too_big_for_the_worker_is_left_to_others_and_hides_no_group(store):
    await add(store, "big", cost=3, group="big")
    await add(store, "small", cost=2, group="small")

    assert claimed(await claim(store, 5, worker="small", room=2, most=2)) == ["small"]
    assert claimed(await claim(store, 5, worker="large", room=9, most=9)) == ["big"]


async def test_a_job_that_was_left_to_others_is_still_in_its_place(store):
    await add(store, "big", cost=3)
    await add(store, "small")
    assert claimed(await claim(store, worker="small", room=2, most=2)) in ([], ["small"])

    assert claimed(await claim(store, worker="large")) == ["big"]


@pytest.mark.parametrize("own", [{"room": 2}, {"room": 2, "most": 2}])
async def test_a_big_job_whose_group_is_full_in_another_queue_asks_for_no_room(store, own):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "runs", group="full", queue="elsewhere")
    await add(store, "big", group="full", cost=5)
    await add(store, "small", group="other")
    await start(store, queues=["elsewhere"])

    answer = await claim(store, 5, worker="own", **own)

    assert (claimed(answer), answer.needs_room) == (["small"], 0)


# bounded moves


async def test_a_claim_that_stopped_early_says_ask_again_now(store, clock):
    await add_many(store, 1000, task="foreign")
    assert len(await start_all(store, 500, worker="dead", lease="1m")) == 1000
    await add(store, "mine", task="own")
    clock.advance("1m")

    answers = [await claim(store, tasks=frozenset(["own"]))]
    while not answers[-1].jobs and len(answers) < 100:
        assert answers[-1].ask_again_at == answers[-1].now
        answers.append(await claim(store, tasks=frozenset(["own"])))

    assert claimed(answers[-1]) == ["mine"]


async def test_all_jobs_that_are_due_together_start_by_asking_again(store, clock):
    ids = await add_many(store, 1000, delay="5s")
    clock.advance("5s")

    assert [job.id for job in await start_all(store, 10)] == ids


async def test_all_groups_that_open_together_start_by_asking_again(store, clock):
    await declare(store, "tenant", Rate(1, per="1s"), by="group")
    await store.insert([a_job(group=f"group {number % 400}") for number in range(800)])
    await complete(store, await start_all(store, 10))
    clock.advance("1s")

    jobs = await start_all(store, 3)

    assert len({job.group for job in jobs}) == len(jobs) == 400


async def test_all_expired_leases_are_taken_back_by_asking_again(store, clock):
    ids = await add_many(store, 500)
    assert len(await start_all(store, 500, worker="dead", lease="1m")) == 500
    clock.advance("1m")

    assert sorted(job.id for job in await start_all(store, 1)) == sorted(ids)


@pytest.mark.parametrize("move", [Move.CANCEL, Move.REMOVE])
async def test_a_job_that_was_taken_away_is_not_started(store, move):
    await add(store, "a", "b")

    await store.move(["a"], move)

    assert claimed(await claim(store, 5)) == ["b"]
