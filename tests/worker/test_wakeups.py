"""An idle worker starts the next job at the very instant it may start, whoever made room for it (design 2.8).

Every test also fails when only the insurance wake-up brought the job: `working` insists on none.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline import App, Concurrency, GroupLimits, Limit, Limiter, Queue, Rate, Worker
from paceline.stores.interface import Ask, Finish, Outcome

from .helpers import add, nothing, started, takes, working


@pytest.fixture
def app(time) -> App:
    return App(time.store)


async def test_a_worker_wakes_when_a_job_arrives_in_any_of_its_queues(time):
    queues = [Queue(name, store=time.store) for name in ("a", "b")]

    async with working(Worker(["a", "b"], nothing, store=time.store)):
        await time.advance("1s")
        await queues[1].add("work")
        await time.advance("1s")
        await queues[0].add("work")
        await time.advance("1s")

    assert [await started(queue) for queue in queues] == [[2], [1]]


async def test_a_worker_wakes_when_another_worker_frees_a_slot_of_the_queue(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(1)])
    busy = Worker("line", takes(time, "7s"), store=time.store)
    await add(queue, 2)

    async with working(busy):
        await time.advance("1s")
        busy.pause()
        async with working(Worker("line", takes(time, "1s"), store=time.store)):
            await time.advance("1m")

    assert await started(queue) == [0, 7]


async def test_a_worker_of_another_queue_wakes_when_a_slot_of_a_common_limit_is_free(time):
    limit = Limit("service", Concurrency(1), queues=["a", "b"])
    first = Queue("a", store=time.store, limits=[limit])
    second = Queue("b", store=time.store, limits=[limit])
    await add(first, 1)

    async with working(
        Worker("a", takes(time, "7s"), store=time.store), Worker("b", takes(time, "1s"), store=time.store)
    ):
        await time.advance("1s")
        await add(second, 1)
        await time.advance("1m")

    assert await started(second) == [7]


async def test_a_worker_wakes_when_a_group_has_a_free_slot_again(time):
    queue = Queue("line", store=time.store)
    busy = Worker("line", takes(time, "7s"), store=time.store, group=GroupLimits(concurrency=1))
    await add(queue, 2, group="a")

    async with working(busy):
        await time.advance("1s")
        busy.pause()
        async with working(Worker("line", takes(time, "1s"), store=time.store)):
            await time.advance("1m")

    assert await started(queue) == [0, 7]


async def test_a_worker_wakes_when_a_permit_of_the_same_limit_is_given_back(time, app):
    app.limit("service", Concurrency(1), tasks=["work"])
    queue = app.queue("line")
    permit = await app.limiter("service").try_acquire()
    await queue.add("work")

    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("3.5s")
        await permit.release()
        await time.advance("1m")

    assert await started(queue) == [3.5]


async def test_a_worker_wakes_when_a_common_limiter_object_has_room_again(time):
    queue = Queue("line", store=time.store)
    limiter = Limiter("service", Concurrency(1), store=time.store)
    permit = await limiter.try_acquire()
    await queue.add("work")

    async with working(Worker("line", nothing, store=time.store, limiter=limiter)):
        await time.advance("3.5s")
        await permit.release()
        await time.advance("1m")

    assert await started(queue) == [3.5]


async def test_a_worker_wakes_when_a_hold_is_over_or_released(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["work"])
    queue = app.queue("line")
    await app.hold("service", for_="1h")

    async with working(Worker("line", nothing, store=time.store)):
        await queue.add("work")
        await time.advance("10s")
        await app.release("service")
        await time.advance("10s")
        await app.hold("service", until=time.now() + timedelta(seconds=5.5))
        await queue.add("work")
        await time.advance("1m")

    assert await started(queue) == [10, 25.5]


async def test_a_worker_wakes_when_a_limit_is_raised_or_dropped(time, app):
    app.limit("service", Rate(1, per="1h"), tasks=["work"])
    queue = app.queue("line")
    await add(queue, 6)

    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("10s")
        await app.override("service", Rate(3, per="1h"), reason="a quiet day")
        await time.advance("10s")
        await app.drop_limit("service")
        await time.advance("1m")

    assert await started(queue) == [0, 10, 10, 20, 20, 20]


async def test_a_worker_sleeps_on_when_a_limit_with_a_temporary_override_was_dropped(time, app):
    app.limit("service", Rate(1, per="1h"), tasks=["work"])
    queue = app.queue("line")

    async with working(Worker("line", nothing, store=time.store)):
        await queue.add("work")
        await app.override("service", Rate(3, per="1h"), expires="10s")
        await app.drop_limit("service")
        # The end of the override is nobody's business any more: the fixture `time` fails if a worker loops there.
        await time.advance("15s")
        await queue.add("work")
        await time.advance("15s")

    assert await started(queue) == [0, 15]


async def test_a_worker_wakes_when_an_override_that_blocked_it_expires(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["work"])
    queue = app.queue("line")
    await queue.add("work")
    await app.limit_state("service")
    await app.override("service", Rate(1, per="1h"), expires="30s")

    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("1s")
        await queue.add("work")
        await time.advance("1m")

    assert await started(queue) == [0, 30]


@pytest.mark.parametrize("part", [{}, {"task": "work"}, {"group": "a"}], ids=["queue", "task", "group"])
async def test_a_worker_wakes_when_its_queue_a_task_or_a_group_is_resumed(time, part):
    queue = Queue("line", store=time.store)
    await queue.pause(**part)

    async with working(Worker("line", nothing, store=time.store)):
        await queue.add("work", group="a")
        await time.advance("12.5s")
        assert await started(queue) == []
        await queue.resume(**part)
        await time.advance("1m")

    assert await started(queue) == [12.5]


async def test_a_worker_wakes_when_a_delayed_job_is_promoted_and_a_failed_one_retried(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("work", delay="1h")

    async def fails_first(job):
        if job.data is None and not await queue.list("failed"):
            raise OSError("down")

    async with working(Worker("line", fails_first, store=time.store)):
        await time.advance("3s")
        await job.promote()
        await time.advance("3s")
        await job.retry()
        await time.advance("3s")

    assert await started(queue) == [3, 6]


async def test_a_worker_wakes_when_another_worker_hands_a_job_back(time):
    queue = Queue("line", store=time.store)
    stops = Worker("line", takes(time, "1h"), store=time.store)

    async with stops:
        await queue.add("work")
        await time.advance("1s")
        async with working(Worker("line", nothing, store=time.store)):
            await time.advance("1.5s")
            await stops.stop(grace=0)
            await time.advance("1m")

    assert await started(queue) == [0, 2.5]


async def test_a_worker_wakes_when_a_store_user_without_a_worker_finishes_a_job(time):
    queue = Queue("line", store=time.store, limits=[Concurrency(1)])
    await add(queue, 2)
    (record,) = (await time.store.claim(Ask(queues=("line",), slots=1, worker="other", lease=3_600_000_000))).jobs

    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("4s")
        await time.store.finish([Finish(id=record.id, fence=record.fence, outcome=Outcome.COMPLETED)])
        await time.advance("1m")

    assert await started(queue) == [0, 4]


async def test_one_hundred_workers_start_one_job_once_and_wake_for_the_next_ones(time):
    queue = Queue("line", store=time.store, limits=[Rate(1, per="1s")])
    crew = [Worker("line", nothing, store=time.store) for _ in range(100)]

    async with working(*crew):
        await time.advance("1s")
        await add(queue, 5)
        await time.advance("1m")

    assert await started(queue) == [1, 2, 3, 4, 5]
