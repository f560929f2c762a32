"""One job per id, and one live job per unique key and queue."""

from __future__ import annotations

from contextlib import suppress

import pytest

from paceline.errors import MoveNotAllowed
from paceline.job import JobState, Move
from paceline.stores.interface import Outcome

from .builders import SECOND, a_job, a_job_in, add, claim, claimed, complete, finish, read, start, state_of

LIVE = [JobState.WAITING, JobState.DELAYED, JobState.ACTIVE]
FINISHED = [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED]


async def add_one(store, id: str, **changes) -> tuple[str, bool]:
    """Insert; returns the id of the job that is there now, and whether it was there before."""
    (inserted,) = await store.insert([a_job(id, **changes)])
    return inserted.job.id, inserted.existed


# ids


@pytest.mark.parametrize("state", [*LIVE, *FINISHED])
async def test_an_id_that_exists_gives_the_job_that_has_it(store, state):
    before = await a_job_in(store, state, data=b"first")

    (inserted,) = await store.insert([a_job("a", data=b"second", priority=9)])

    assert (inserted.job, inserted.existed) == (before, True)
    assert await read(store, "a") == before


async def test_a_job_that_is_sent_twice_starts_once(store):
    await add(store, "a")
    await add(store, "a")

    assert claimed(await claim(store, 5)) == ["a"]
    assert sum((await store.counts("line")).values()) == 1


async def test_an_id_is_one_in_all_queues(store):
    await add(store, "a", queue="one")

    assert await add_one(store, "a", queue="two") == ("a", True)

    assert claimed(await claim(store, 5, queues=["two"])) == []
    assert (await read(store, "a")).queue == "one"


async def test_an_id_twice_in_one_bulk_gives_one_job(store):
    inserted = await store.insert([a_job("a", data=b"1"), a_job("b"), a_job("a", data=b"2")])

    assert [(each.job.id, each.existed) for each in inserted] == [("a", False), ("b", False), ("a", True)]
    assert (await read(store, "a")).data == b"1"
    assert claimed(await claim(store, 5)) == ["a", "b"]


async def test_an_id_twice_in_one_bulk_that_joins_others_gives_one_job(store):
    await add(store, "first", "second")
    await start(store)

    inserted = await store.insert([a_job("a"), a_job("a"), a_job("b")])

    assert [(each.job.id, each.existed) for each in inserted] == [("a", False), ("a", True), ("b", False)]
    assert claimed(await claim(store, 9)) == ["second", "a", "b"]


async def test_a_bulk_that_is_sent_again_adds_only_what_is_missing(store):
    await add(store, "a", "c")

    inserted = await store.insert([a_job(id) for id in ("a", "b", "c")])

    assert [each.existed for each in inserted] == [True, False, True]
    assert sum((await store.counts("line")).values()) == 3


async def test_an_id_whose_job_was_not_kept_is_free(store):
    await add(store, "a", keep=0)
    await complete(store, await start(store))

    assert await add_one(store, "a") == ("a", False)


# unique keys


@pytest.mark.parametrize("state", LIVE)
async def test_a_live_job_with_the_key_is_given_instead(store, state):
    before = await a_job_in(store, state, unique="key")

    assert await add_one(store, "b", unique="key") == ("a", True)

    assert await read(store, "a") == before
    assert await store.get(["b"]) == []


@pytest.mark.parametrize("state", FINISHED)
async def test_a_finished_job_frees_its_key(store, state):
    await a_job_in(store, state, unique="key")

    assert await add_one(store, "b", unique="key") == ("b", False)


@pytest.mark.parametrize("how", ["remove", "drain", "clean"])
async def test_a_removed_job_frees_its_key(store, clock, how):
    await add(store, "a", unique="key")
    clock.advance("1s")
    if how == "remove":
        await store.move(["a"], Move.REMOVE)
    elif how == "drain":
        await store.drain("line")
    else:
        await store.clean("line", JobState.WAITING, 0)

    assert await add_one(store, "b", unique="key") == ("b", False)


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED])
async def test_a_job_that_comes_back_keeps_its_key(store, outcome):
    job = await a_job_in(store, JobState.ACTIVE, unique="key", attempts=3)
    await finish(store, job, outcome)

    assert await add_one(store, "b", unique="key") == ("a", True)


async def test_a_job_that_is_retried_by_hand_has_its_key_again(store):
    await a_job_in(store, JobState.FAILED, unique="key")
    await store.move(["a"], Move.RETRY)

    assert await add_one(store, "b", unique="key") == ("a", True)


async def test_another_key_is_another_job(store):
    await add(store, "a", unique="key")

    assert await add_one(store, "b", unique="other") == ("b", False)


async def test_a_job_without_a_key_is_never_a_duplicate(store):
    await add(store, "a", unique="key")

    assert await add_one(store, "b") == ("b", False)


async def test_each_queue_has_keys_of_its_own(store):
    await add(store, "a", unique="key", queue="one")

    assert await add_one(store, "b", unique="key", queue="two") == ("b", False)


async def test_a_key_twice_in_one_bulk_gives_one_job(store):
    inserted = await store.insert([a_job("a", unique="key"), a_job("b", unique="key"), a_job("c")])

    assert [(each.job.id, each.existed) for each in inserted] == [("a", False), ("a", True), ("c", False)]
    assert await store.get(["b"]) == []


async def test_a_bulk_gives_the_existing_job_beside_new_ones(store):
    await add(store, "a", unique="key")

    inserted = await store.insert([a_job("b", unique="key"), a_job("c", unique="other")])

    assert [(each.job.id, each.existed) for each in inserted] == [("a", True), ("c", False)]
    assert (await store.counts("line"))["waiting"] == 2


async def test_a_key_counts_until_exactly_the_end_of_its_time(store, clock):
    await add(store, "a", unique="key", unique_ttl="10s")
    until = clock.now() + 10 * SECOND

    clock.to(until - 1)
    before = await add_one(store, "b", unique="key", unique_ttl="10s")
    clock.to(until)

    assert before == ("a", True)
    assert await add_one(store, "c", unique="key", unique_ttl="10s") == ("c", False)
    assert (await store.counts("line"))["waiting"] == 2


async def test_the_time_of_a_key_counts_from_the_creation_of_the_job(store, clock):
    await add(store, "a", unique="key", unique_ttl="10s")
    clock.advance("8s")
    assert await add_one(store, "b", unique="key", unique_ttl="10s") == ("a", True)

    clock.advance("2s")

    assert await add_one(store, "c", unique="key", unique_ttl="10s") == ("c", False)


async def test_a_job_that_ends_before_the_time_of_its_key_frees_it(store):
    await a_job_in(store, JobState.COMPLETED, unique="key", unique_ttl="1h")

    assert await add_one(store, "b", unique="key", unique_ttl="1h") == ("b", False)


async def test_the_end_of_an_older_job_does_not_free_the_key_of_a_newer_one(store, clock):
    await add(store, "old", unique="key", unique_ttl="1s")
    (job,) = await start(store)
    clock.advance("1s")
    await add(store, "new", unique="key")

    await finish(store, job)

    assert await add_one(store, "third", unique="key") == ("new", True)


async def test_a_duplicate_changes_nothing_of_the_job_that_is_there(store, clock):
    await add(store, "a", unique="key", data=b"1", delay="1h")
    clock.advance("1m")

    await add(store, "b", unique="key", data=b"2")

    assert await state_of(store, "a") == JobState.DELAYED
    assert (await read(store, "a")).data == b"1"


async def test_an_id_that_a_unique_key_left_free_goes_to_the_next_job_of_the_bulk_that_wants_it(store):
    first, second, third, fourth, fifth = await store.insert(
        [
            a_job("a", unique="one"),
            a_job("b", unique="one"),
            a_job("c"),
            a_job("b"),
            a_job("d"),
        ]
    )

    assert [each.existed for each in (first, second, third, fourth, fifth)] == [False, True, False, False, False]
    assert second.job.id == "a"
    assert [job.id for job in (await claim(store, slots=9)).jobs] == ["a", "c", "b", "d"]


# a finished job that is retried


@pytest.mark.parametrize("state", FINISHED)
async def test_a_finished_job_whose_key_another_one_has_is_not_retried(store, state):
    before = await a_job_in(store, state, "a", unique="key")
    await add(store, "b", unique="key")

    with pytest.raises(MoveNotAllowed, match="'b' has its unique key") as refused:
        await store.move(["a"], Move.RETRY)

    assert (refused.value.job_id, refused.value.state, refused.value.holder) == ("a", state, "b")
    assert (await store.move_all("line", state, Move.RETRY), await read(store, "a")) == (0, before)
    assert await add_one(store, "c", unique="key") == ("b", True)
    assert claimed(await claim(store, 5)) == ["b"]


@pytest.mark.parametrize("state", FINISHED)
async def test_a_finished_job_that_is_retried_takes_its_free_key_again(store, state):
    await a_job_in(store, state, "a", unique="key")

    await store.move(["a"], Move.RETRY)

    assert await add_one(store, "b", unique="key") == ("a", True)
    (job,) = await start(store)
    await finish(store, job)
    assert await add_one(store, "b", unique="key") == ("b", False)


async def test_a_key_whose_time_is_over_is_taken_by_a_job_that_is_retried(store, clock):
    await a_job_in(store, JobState.FAILED, "a", unique="key", unique_ttl="1m")
    await add(store, "b", unique="key", unique_ttl="10s")
    clock.advance("10s")

    await store.move(["a"], Move.RETRY)

    assert await add_one(store, "c", unique="key") == ("a", True)
    clock.advance("50s")
    assert await add_one(store, "c", unique="key") == ("c", False)


async def test_of_jobs_with_one_key_a_move_retries_none_and_a_sweep_the_first(store):
    for id in ("a", "b"):
        await a_job_in(store, JobState.FAILED, id, unique="key")
    await a_job_in(store, JobState.FAILED, "other", unique="other key")
    await a_job_in(store, JobState.FAILED, "without")

    with pytest.raises(MoveNotAllowed, match="'a' has its unique key"):
        await store.move(["other", "a", "b"], Move.RETRY)
    states = [await state_of(store, id) for id in ("other", "a", "b")]
    retried = await store.move_all("line", JobState.FAILED, Move.RETRY)

    assert (states, retried) == ([JobState.FAILED] * 3, 3)
    assert claimed(await claim(store, 5)) == ["a", "other", "without"]


async def test_keys_of_other_queues_stop_no_retry(store):
    await a_job_in(store, JobState.FAILED, "a", unique="key")
    await add(store, "b", queue="two", unique="key")

    await store.move(["a"], Move.RETRY)

    assert claimed(await claim(store, 5)) == ["a"]


async def test_of_retries_and_adds_at_the_same_time_one_gets_the_key(store, in_threads):
    for number in range(4):
        await a_job_in(store, JobState.FAILED, f"old {number}", unique="key")

    async def race(other, index):
        if index % 3 == 0:
            await other.insert([a_job(f"new {index}", unique="key")])
        elif index % 3 == 1:
            await other.move_all("line", JobState.FAILED, Move.RETRY)
        else:
            with suppress(MoveNotAllowed):
                await other.move([f"old {index // 3}"], Move.RETRY)

    await in_threads(12, race)

    assert (await store.counts("line"))["waiting"] == 1
