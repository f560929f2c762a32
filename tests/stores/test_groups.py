"""Groups and their size: `max_size` is part of the insert, and a job that comes back is never refused."""

from __future__ import annotations

import pytest

from paceline.errors import GroupFull
from paceline.job import JobState, Move
from paceline.stores.interface import Outcome

from .builders import a_job, add, claim, claimed, finish, read, start


async def test_a_full_group_refuses_a_job(store):
    await add(store, "a", "b", group="acme")

    with pytest.raises(GroupFull) as refused:
        await add(store, "c", group="acme", group_max_size=2)

    assert (refused.value.group, refused.value.size, refused.value.max_size) == ("acme", 2, 2)
    assert await store.get(["c"]) == []
    assert claimed(await claim(store, 5)) == ["a", "b"]


async def test_a_group_takes_exactly_its_size(store):
    for id in ("a", "b", "c"):
        await add(store, id, group="acme", group_max_size=3)

    with pytest.raises(GroupFull):
        await add(store, "d", group="acme", group_max_size=3)

    assert (await store.counts("line"))["waiting"] == 3


async def test_a_job_that_names_no_size_is_not_refused(store):
    await add(store, "a", group="acme", group_max_size=1)

    await add(store, "b", group="acme")

    assert claimed(await claim(store, 5)) == ["a", "b"]


async def test_the_size_is_the_one_that_the_job_names(store):
    await add(store, "a", group="acme", group_max_size=1)

    await add(store, "b", group="acme", group_max_size=2)

    with pytest.raises(GroupFull):
        await add(store, "c", group="acme", group_max_size=2)


async def test_other_groups_and_jobs_without_a_group_do_not_count(store):
    await add(store, "a", group="other")
    await add(store, "b")

    await add(store, "c", group="acme", group_max_size=1)

    assert (await store.counts("line"))["waiting"] == 3


async def test_a_group_of_the_same_name_in_another_queue_does_not_count(store):
    await add(store, "a", group="acme", queue="one")

    await add(store, "b", group="acme", queue="two", group_max_size=1)

    assert claimed(await claim(store, queues=["two"])) == ["b"]


async def test_delayed_jobs_count(store):
    await add(store, "a", group="acme", delay="1h")

    with pytest.raises(GroupFull):
        await add(store, "b", group="acme", group_max_size=1)


async def test_a_delayed_job_is_refused_like_any_other(store):
    await add(store, "a", group="acme")

    with pytest.raises(GroupFull):
        await add(store, "b", group="acme", delay="1h", group_max_size=1)

    assert (await store.counts("line"))["delayed"] == 0


async def test_a_delayed_job_counts_once_when_it_is_due(store, clock):
    await add(store, "a", group="acme", delay="1s")
    clock.advance("1s")
    assert claimed(await claim(store)) == ["a"]

    await add(store, "b", group="acme", group_max_size=1)

    assert claimed(await claim(store)) == ["b"]


async def test_a_job_that_started_makes_room(store):
    await add(store, "a", group="acme", group_max_size=1)
    await start(store)

    await add(store, "b", group="acme", group_max_size=1)

    assert claimed(await claim(store)) == ["b"]


@pytest.mark.parametrize("how", ["cancel", "remove", "drain", "obliterate"])
async def test_a_job_that_was_taken_away_makes_room(store, how):
    await add(store, "a", group="acme", group_max_size=1)
    if how == "drain":
        await store.drain("line")
    elif how == "obliterate":
        await store.obliterate("line", False)
    else:
        await store.move(["a"], Move(how))

    await add(store, "b", group="acme", group_max_size=1)

    assert claimed(await claim(store, 5)) == ["b"]


async def test_promoting_a_job_changes_nothing_of_the_size(store):
    await add(store, "a", group="acme", delay="1h", group_max_size=1)
    await store.move(["a"], Move.PROMOTE)

    with pytest.raises(GroupFull) as refused:
        await add(store, "b", group="acme", group_max_size=1)

    assert refused.value.size == 1


# bulks


async def test_a_bulk_that_fits_is_stored(store):
    await store.insert([a_job(group="acme", group_max_size=3) for _ in range(3)])

    assert (await store.counts("line"))["waiting"] == 3


async def test_a_bulk_that_does_not_fit_is_refused_as_a_whole(store):
    await add(store, "a", group="acme")

    with pytest.raises(GroupFull):
        await store.insert(bulk("acme", 3, 3))

    assert (await store.counts("line"))["waiting"] == 1


async def test_a_bulk_counts_each_of_its_groups(store):
    await store.insert(bulk("a", 2, 2) + bulk("b", 2, 2))

    with pytest.raises(GroupFull) as refused:
        await store.insert(bulk("c", 2, 2) + bulk("b", 1, 2))

    assert refused.value.group == "b"
    assert (await store.counts("line"))["waiting"] == 4


async def test_jobs_of_a_bulk_that_exist_already_do_not_count(store):
    await add(store, "a", "b", group="acme", group_max_size=2)

    inserted = await store.insert([a_job(id, group="acme", group_max_size=2) for id in ("a", "b", "a")])

    assert [each.existed for each in inserted] == [True, True, True]


async def test_duplicates_inside_a_bulk_count_once(store):
    jobs = [a_job(unique="key", group="acme", group_max_size=2) for _ in range(5)]

    inserted = await store.insert([*jobs, a_job("last", group="acme", group_max_size=2)])

    assert len({each.job.id for each in inserted}) == 2


async def test_a_bulk_counts_delayed_and_waiting_jobs_together(store):
    with pytest.raises(GroupFull):
        await store.insert(bulk("acme", 1, 2) + bulk("acme", 2, 2, delay="1s"))

    assert set((await store.counts("line")).values()) == {0}


def bulk(group: str, number: int, size: int, **changes) -> list:
    return [a_job(group=group, group_max_size=size, **changes) for _ in range(number)]


# coming back


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED, Outcome.CRASHED])
async def test_a_job_that_comes_back_is_never_refused(store, outcome):
    await add(store, "a", group="acme", group_max_size=1, attempts=3)
    (job,) = await start(store)
    await add(store, "b", group="acme", group_max_size=1)

    await finish(store, job, outcome)

    assert claimed(await claim(store, 5)) == ["a", "b"]


@pytest.mark.parametrize("after", ["0s", "1h"])
async def test_a_job_that_came_back_counts(store, after):
    await add(store, "a", group="acme", group_max_size=1, attempts=3)
    (job,) = await start(store)

    await finish(store, job, Outcome.RETRY, after=after)

    with pytest.raises(GroupFull):
        await add(store, "b", group="acme", group_max_size=1)


async def test_a_job_that_is_retried_by_hand_is_never_refused(store):
    await add(store, "a", group="acme", group_max_size=1)
    (job,) = await start(store)
    await finish(store, job, Outcome.FAILED)
    await add(store, "b", group="acme", group_max_size=1)

    await store.move(["a"], Move.RETRY)

    assert (await read(store, "a")).state is JobState.WAITING
    with pytest.raises(GroupFull) as refused:
        await add(store, "c", group="acme", group_max_size=2)
    assert refused.value.size == 2


async def test_a_job_whose_lease_ended_is_never_refused(store, clock):
    await add(store, "a", group="acme", group_max_size=1)
    await start(store, lease="1m")
    await add(store, "b", group="acme", group_max_size=1)

    clock.advance("1m")

    assert claimed(await claim(store, 5)) == ["a", "b"]
