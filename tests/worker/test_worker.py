"""A worker runs jobs: their results, their order, its slots, its queues, several workers (seed-systems 3.3, 3.6)."""

from __future__ import annotations

import asyncio

import pytest

from paceline import (
    App,
    Concurrency,
    JobFailed,
    JobNotFound,
    NotSerializable,
    Queue,
    Rate,
    Worker,
    current_job,
)

from .helpers import Running, add, after, nothing, soon, started, states, takes, working

# processing


async def test_a_worker_runs_a_job_and_stores_what_its_handler_returned(time):
    queue = Queue("line", store=time.store)

    async def double(job):
        return job.data["number"] * 2

    job = await queue.add("double", {"number": 21})
    async with working(Worker("line", double, store=time.store)):
        assert await soon(asyncio.ensure_future(job.result()), time) == 42

    await job.refresh()
    assert (job.state, job.result_value, job.attempts_made, job.error) == ("completed", 42, 1, None)
    assert after(job.started_at) == after(job.finished_at) == 0


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}, [1, None, "é"], {"a": {"b": 1.5}}])
async def test_every_json_value_comes_back_as_a_result_falsy_ones_included(time, value):
    queue = Queue("line", store=time.store)

    async def give(job):
        return value

    job = await queue.add("give")
    async with working(Worker("line", give, store=time.store)):
        await time.advance(0)

    assert await job.result() == value


async def test_a_job_added_while_the_worker_sleeps_starts_at_that_instant(time):
    queue = Queue("line", store=time.store)

    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("12.345678s")
        await queue.add("work")
        await time.advance("1s")

    assert await started(queue) == [12.345678]


async def test_a_handler_that_raises_fails_its_job_with_type_and_text_and_the_worker_goes_on(time):
    queue = Queue("line", store=time.store)

    async def picky(job):
        if job.data == 0:
            raise ValueError("zero is too small")

    first, second = await add(queue, 2)
    async with working(Worker("line", picky, store=time.store)):
        await time.advance(0)

    assert await states([first, second]) == ["failed", "completed"]
    assert first.error == "ValueError: zero is too small"
    with pytest.raises(JobFailed, match="ValueError: zero is too small"):
        await first.result()


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
async def test_a_handler_that_exits_or_cancels_itself_fails_its_job_and_not_the_worker(time, error):
    queue = Queue("line", store=time.store)

    async def rude(job):
        if job.data == 0:
            raise error

    jobs = await add(queue, 2)
    async with working(Worker("line", rude, store=time.store)):
        await time.advance(0)

    assert await states(jobs) == ["failed", "completed"]
    assert type(error).__name__ in jobs[0].error


async def test_a_result_that_is_not_json_fails_the_attempt_and_says_so(time):
    queue = Queue("line", store=time.store)

    async def handler(job):
        return object()

    job = await queue.add("work")
    async with working(Worker("line", handler, store=time.store)):
        await time.advance(0)

    assert (await job.refresh()).state == "failed"
    assert NotSerializable.__name__ in job.error


@pytest.mark.parametrize("fails", [True, False])
async def test_keep_zero_removes_the_job_when_it_ends_and_those_who_wait_still_hear(time, fails):
    queue = Queue("line", store=time.store)

    async def handler(job):
        if fails:
            raise OSError("down")
        return "done"

    job = await queue.add("work", keep=0)
    waiting = asyncio.ensure_future(job.result())
    await asyncio.sleep(0)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance(0)

    assert await queue.get(job.id) is None
    if fails:
        with pytest.raises(JobFailed, match="OSError: down"):
            await waiting
    else:
        assert await waiting == "done"
    with pytest.raises(JobNotFound):
        await job.refresh()


async def test_current_job_is_the_job_of_the_running_handler_and_of_nobody_else(time):
    queue = Queue("line", store=time.store)
    seen = []

    async def handler(job):
        await time.sleep("1s")
        seen.append((job.data, current_job().data, current_job().id == job.id))

    await add(queue, 3)
    async with working(Worker("line", handler, store=time.store, concurrency=3)):
        await time.advance("2s")

    assert sorted(seen) == [(0, 0, True), (1, 1, True), (2, 2, True)]
    with pytest.raises(LookupError):
        current_job()


async def test_progress_and_log_are_seen_while_the_job_runs(time):
    queue = Queue("line", store=time.store)

    async def handler(job):
        await job.progress(25, "a quarter")
        await job.log("began")
        await time.sleep("10s")
        await job.progress(75)

    job = await queue.add("work")
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("5s")
        await job.refresh()
        assert (float(job.progress), job.progress.message, job.logs) == (25, "a quarter", ("began",))
        await time.advance("5s")

    assert float((await job.refresh()).progress) == 100


# order and slots


async def test_four_jobs_on_two_slots_run_two_at_a_time(time):
    queue = Queue("line", store=time.store)
    running = Running(time, "200ms")
    await add(queue, 4)

    async with working(Worker("line", running, store=time.store, concurrency=2)):
        await time.advance("1s")

    assert running.most == 2
    assert await started(queue) == [0, 0, 0.2, 0.2]


@pytest.mark.parametrize("most", [1, 2])
async def test_a_concurrency_limit_of_the_queue_holds_over_all_slots_of_all_workers(time, most):
    queue = Queue("line", store=time.store, limits=[Concurrency(most)])
    running = Running(time, "500ms")
    await add(queue, 6)

    async with working(*(Worker("line", running, store=time.store, concurrency=5) for _ in range(2))):
        await time.advance("10s")

    assert running.most == most
    assert await started(queue) == [0.5 * (place // most) for place in range(6)]


async def test_a_slot_that_is_free_is_filled_at_once_whatever_the_other_slots_do(time):
    queue = Queue("line", store=time.store)

    async def handler(job):
        await time.sleep(["5s", "1s", "1s", "1s"][job.data])

    await add(queue, 4)
    async with working(Worker("line", handler, store=time.store, concurrency=2)):
        await time.advance("10s")

    assert await started(queue) == [0, 0, 1, 2]


async def test_lifo_jobs_run_last_in_first_out_and_before_the_others(time):
    queue = Queue("line", store=time.store)
    ran = []

    async def handler(job):
        ran.append(job.data)

    await add(queue, 2)
    for number in (10, 11, 12):
        await queue.add("work", number, lifo=True)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance(0)

    assert ran == [12, 11, 10, 0, 1]


async def test_a_lower_priority_number_runs_first_negatives_included(time):
    queue = Queue("line", store=time.store)
    ran = []

    async def handler(job):
        ran.append(job.data)

    for priority in (10, 0, -3, 5):
        await queue.add("work", priority, priority=priority)
    async with working(Worker("line", handler, store=time.store)):
        await time.advance(0)

    assert ran == [-3, 0, 5, 10]


async def test_delayed_jobs_start_at_their_exact_instant_and_not_before(time):
    queue = Queue("line", store=time.store)
    early, late = await queue.add("work", delay="1s"), await queue.add("work", at=time.now().replace(second=7))

    async with working(Worker("line", nothing, store=time.store)):
        await time.advance("999999us")
        assert await states([early, late]) == ["delayed", "delayed"]
        await time.advance("1us")
        assert await states([early, late]) == ["completed", "delayed"]
        await time.advance("1m")

    assert await started(queue) == [1, 7]


async def test_one_slot_serves_two_queues_in_turn(time):
    queues = [Queue(name, store=time.store) for name in ("a", "b")]
    ran = []

    async def handler(job):
        ran.append(job.queue)
        await time.sleep("1s")

    for queue in queues:
        await add(queue, 3)
    async with working(Worker(["a", "b"], handler, store=time.store)):
        await time.advance("10s")

    assert ran == ["a", "b", "a", "b", "a", "b"]


async def test_a_blocked_queue_does_not_hold_up_the_other_queue_of_the_worker(time):
    blocked = Queue("blocked", store=time.store, limits=[Rate(1, per="1h")])
    free = Queue("free", store=time.store)
    await add(blocked, 3)
    await add(free, 3)

    async with working(Worker(["blocked", "free"], takes(time, "1s"), store=time.store)):
        await time.advance("10s")

    assert (await started(blocked), await started(free)) == ([0], [1, 2, 3])


async def test_a_worker_serves_only_its_own_queues(time):
    mine, other = Queue("mine", store=time.store), Queue("other", store=time.store)
    jobs = [await mine.add("work"), await other.add("work")]

    async with working(Worker("mine", nothing, store=time.store, concurrency=5)):
        await time.advance("1m")

    assert await states(jobs) == ["completed", "waiting"]


async def test_several_workers_in_one_process_run_every_job_exactly_once(time):
    queue = Queue("line", store=time.store)
    ran = []

    async def handler(job):
        ran.append(job.data)
        await time.sleep("1s")

    await add(queue, 40)
    async with working(*(Worker("line", handler, store=time.store, concurrency=3) for _ in range(4))):
        await time.advance("10s")

    assert sorted(ran) == list(range(40))
    assert await started(queue) == [place // 12 for place in range(40)]


async def test_an_app_runs_several_workers_in_one_process(time):
    app = App(time.store)
    running = Running(time, "1s")

    @app.task()
    async def work() -> None:
        await running(current_job())

    await work.enqueue_many([()] * 12)
    async with working(app.worker(concurrency=2, workers=3)):
        await time.advance("10s")

    assert running.most == 6
    assert [after(start.at) for start in time.starts()] == [0] * 6 + [1] * 6
