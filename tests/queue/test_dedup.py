"""One live job per key: `unique=` and `job_id=`."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import ConfigError, Group, GroupFull, Job, Queue, Unique, Worker
from paceline.testing import VirtualTime


@pytest.fixture
def queue(paceline_time: VirtualTime) -> Queue:
    return Queue("mail", store=paceline_time.store)


async def finish_all(time: VirtualTime, queue: str = "mail") -> None:
    async def handler(job: Job[Any]) -> None:
        if job.task == "fail":
            raise ValueError("boom")

    async with Worker(queue, handler, store=time.store, concurrency=10):
        await time.advance(0)


async def size(queue: Queue) -> int:
    return sum((await queue.counts()).values())


# by key


async def test_a_live_match_by_key_is_returned_instead(queue: Queue) -> None:
    first = await queue.add("send", 1, unique=Unique(key="daily"))
    again = await queue.add("other", 2, unique=Unique(key="daily"), priority=5)
    assert again == first
    assert (again.task, again.data, again.priority) == ("send", 1, 0)
    assert await size(queue) == 1


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "removed"])
async def test_the_key_is_free_again_when_its_job_has_ended(queue: Queue, paceline_time: VirtualTime, how: str) -> None:
    first = await queue.add("fail" if how == "failed" else "t", unique=Unique(key="k"))
    if how == "cancelled":
        await first.cancel()
    elif how == "removed":
        await first.remove()
    else:
        await finish_all(paceline_time)
    second = await queue.add("t", unique=Unique(key="k"))
    assert second.id != first.id
    assert await queue.add("t", unique=Unique(key="k")) == second


@pytest.mark.parametrize("state", ["waiting", "delayed", "active"])
async def test_every_job_that_has_not_ended_is_live(queue: Queue, paceline_time: VirtualTime, state: str) -> None:
    async def handler(job: Job[Any]) -> None:
        await paceline_time.sleep("10s")

    first = await queue.add("t", unique=Unique(key="k"), delay="1h" if state == "delayed" else None)
    if state == "waiting":
        await queue.pause()
    async with Worker("mail", handler, store=paceline_time.store):
        await paceline_time.advance("1s")
        again = await queue.add("t", unique=Unique(key="k"))
        assert (again.id, again.state) == (first.id, state)
        await paceline_time.advance("10s")


async def test_different_keys_and_different_queues_do_not_meet(queue: Queue, paceline_time: VirtualTime) -> None:
    other = Queue("letters", store=paceline_time.store)
    jobs = [
        await queue.add("t", unique=Unique(key="a")),
        await queue.add("t", unique=Unique(key="b")),
        await other.add("t", unique=Unique(key="a")),
        await queue.add("t"),
    ]
    assert len({job.id for job in jobs}) == 4


# by payload


async def test_without_a_key_task_and_data_decide(queue: Queue) -> None:
    first = await queue.add("send", {"to": "a", "n": [1, {"x": None}]}, unique=Unique())
    same = await queue.add("send", {"n": [1, {"x": None}], "to": "a"}, unique=Unique())
    assert same.id == first.id
    others = [
        await queue.add("send", {"to": "b", "n": [1, {"x": None}]}, unique=Unique()),
        await queue.add("send", {"to": "a", "n": [1, {"x": 0}]}, unique=Unique()),
        await queue.add("resend", {"to": "a", "n": [1, {"x": None}]}, unique=Unique()),
        await queue.add("send", None, unique=Unique()),
    ]
    assert len({job.id for job in (first, *others)}) == 5


async def test_a_list_and_its_order_are_part_of_the_data(queue: Queue) -> None:
    one, two = await queue.add("t", [1, 2], unique=Unique()), await queue.add("t", [2, 1], unique=Unique())
    assert one.id != two.id


# for a while


async def test_ttl_ends_the_match_counted_from_the_first_one(queue: Queue, paceline_time: VirtualTime) -> None:
    unique = Unique(key="k", ttl="1m")
    first = await queue.add("t", unique=unique)
    await paceline_time.advance("59.999999s")
    assert await queue.add("t", unique=unique) == first
    await paceline_time.advance("1us")
    second = await queue.add("t", unique=unique)
    assert second.id != first.id
    await paceline_time.advance("30s")
    assert (await queue.add("t", unique=unique)).id == second.id


async def test_the_end_of_an_older_job_does_not_free_the_key_of_a_newer_one(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    unique = Unique(key="k", ttl="1m")
    first = await queue.add("t", unique=unique)
    await paceline_time.advance("2m")
    second = await queue.add("t", unique=unique)
    await first.cancel()
    assert (await queue.add("t", unique=unique)).id == second.id


# many, and refusals


async def test_add_many_deduplicates_inside_the_batch(queue: Queue) -> None:
    jobs = await queue.add_many([("t", n, {"unique": Unique(key="k")}) for n in range(3)] + [("t", 9)])
    assert [job.data for job in jobs] == [0, 0, 0, 9]
    assert await size(queue) == 2


async def test_a_job_that_exists_already_needs_no_room_in_its_group(queue: Queue) -> None:
    options: dict[str, Any] = {"group": Group("g", max_size=1)}
    first = await queue.add("t", unique=Unique(key="k"), **options)
    second = await queue.add("t", unique=Unique(key="k"), **options)
    assert second == first
    assert await queue.add("t", job_id=first.id, **options) == first
    with pytest.raises(GroupFull):
        await queue.add("t", **options)


async def test_a_retried_job_takes_its_key_again(queue: Queue, paceline_time: VirtualTime) -> None:
    job = await queue.add("t", unique=Unique(key="k"))
    await finish_all(paceline_time)
    await job.refresh()
    await job.retry()
    assert (await queue.add("t", unique=Unique(key="k"))).id == job.id


# own ids


async def test_adding_an_existing_id_gives_that_job_whatever_its_state(
    queue: Queue, paceline_time: VirtualTime
) -> None:
    first = await queue.add("t", 1, job_id="order-7")
    assert await queue.add("other", 2, job_id="order-7") == first
    await finish_all(paceline_time)
    again = await queue.add("t", 3, job_id="order-7")
    assert (again.state, again.data) == ("completed", 1)
    assert await size(queue) == 1
    assert len(paceline_time.starts()) == 1


async def test_add_many_with_one_id_twice_adds_one_job(queue: Queue) -> None:
    jobs = await queue.add_many([("t", n, {"job_id": "same"}) for n in range(3)])
    assert [(job.id, job.data) for job in jobs] == [("same", 0)] * 3
    assert await size(queue) == 1


async def test_a_removed_id_may_be_used_again(queue: Queue) -> None:
    job = await queue.add("t", 1, job_id="order-7")
    await job.remove()
    assert (await queue.add("t", 2, job_id="order-7")).data == 2


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: Unique(key=""), "unique.key=''"),
        (lambda: Unique(key=5), "unique.key=5"),  # type: ignore[arg-type]
        (lambda: Unique(key="a\nb"), "unique.key="),
        (lambda: Unique(ttl=0), "unique.ttl=0"),
        (lambda: Unique(ttl="soon"), "unique.ttl='soon'"),
    ],
    ids=["empty", "no text", "control character", "zero", "no duration"],
)
def test_a_wrong_unique_is_an_error_that_shows_the_value(make: Any, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert shown in str(caught.value)


async def test_what_is_not_unique_is_an_error_and_nothing_is_stored(queue: Queue) -> None:
    for wrong in ("key", True, {"key": "k"}):
        with pytest.raises(ConfigError, match="unique="):
            await queue.add("t", unique=wrong)  # type: ignore[arg-type]
    assert await size(queue) == 0
