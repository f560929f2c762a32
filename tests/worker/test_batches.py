"""Batches: one call for several jobs, each counted, each with an end of its own (seed-systems 3.4, api.md)."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline import Concurrency, Fail, GroupLimits, Limit, Queue, Rate, RateLimited, Retry, Worker, current_job

from .helpers import add, after, started, states, takes, working


def batch_worker(time, handler, *, batch: int = 3, **options) -> Worker:
    return Worker("line", handler, store=time.store, batch=batch, **options)


async def run_batch(time, handler, number: int = 3, batch: int = 10, **options):
    """Add jobs, let a batch handler have them, and give the jobs as they are then."""
    queue = Queue("line", store=time.store)
    jobs = await add(queue, number, **options)
    async with working(batch_worker(time, handler, batch=batch)):
        await time.advance("1m")
    return [await job.refresh() for job in jobs]


async def test_three_jobs_come_as_one_batch_of_three_in_order(time):
    calls = []

    async def handler(jobs):
        calls.append([(job.data, job.attempts_made, job.state) for job in jobs])

    jobs = await run_batch(time, handler, number=3, batch=3)

    assert calls == [[(0, 1, "active"), (1, 1, "active"), (2, 1, "active")]]
    assert [(job.state, job.result_value) for job in jobs] == [("completed", None)] * 3


async def test_a_partial_batch_does_not_wait_for_more_jobs(time):
    queue = Queue("line", store=time.store)
    sizes = []

    async def handler(jobs):
        sizes.append((after(time.now()), len(jobs)))
        await time.sleep("1s")

    async with working(batch_worker(time, handler, batch=10)):
        await add(queue, 2)
        await time.advance("500ms")
        await add(queue, 13)
        await time.advance("1m")

    # Two at once; what came meanwhile goes together, at most ten.
    assert sizes == [(0, 2), (1, 10), (2, 3)]


async def test_a_batch_of_one_job_is_still_a_list(time):
    seen = []

    async def handler(jobs):
        seen.append(type(jobs))

    await run_batch(time, handler, number=1)

    assert seen == [list]


async def test_each_job_gets_its_own_result(time):
    async def handler(jobs):
        return [job.data * 10 for job in jobs]

    jobs = await run_batch(time, handler)

    assert [await job.result() for job in jobs] == [0, 10, 20]


async def test_an_exception_instance_in_the_results_fails_that_job_alone(time):
    async def handler(jobs):
        return ["first", ValueError("fail me"), "third"]

    jobs = await run_batch(time, handler)

    assert [(job.state, job.result_value, job.error) for job in jobs] == [
        ("completed", "first", None),
        ("failed", None, "ValueError: fail me"),
        ("completed", "third", None),
    ]


async def test_a_job_that_failed_in_its_batch_is_retried_by_its_own_options(time):
    calls = []

    async def handler(jobs):
        calls.append((after(time.now()), [job.data for job in jobs]))
        return [OSError("down") if job.data == 1 and job.attempts_made == 1 else None for job in jobs]

    jobs = await run_batch(time, handler, attempts=2, retry_delay="5s")

    assert calls == [(0, [0, 1, 2]), (5, [1])]
    assert [(job.state, job.attempts_made) for job in jobs] == [("completed", 1), ("completed", 2), ("completed", 1)]


async def test_verdict_instances_in_the_results_speak_for_their_job_alone(time):
    async def handler(jobs):
        verdicts = [None, Fail("wrong address"), Retry(after="10s"), RateLimited(retry_after="20s")]
        return [verdicts[job.data] if after(time.now()) == 0 else "later" for job in jobs]

    queue = Queue("line", store=time.store)
    jobs = await add(queue, 4, attempts=3)
    async with working(batch_worker(time, handler, batch=10)):
        await time.advance("9s")
        assert await states(jobs) == ["completed", "failed", "delayed", "waiting"]
        assert [job.attempts_made for job in jobs] == [1, 1, 1, 0]
        assert jobs[1].error == "wrong address"
        await time.advance("1m")

    # The hold of the refusal is for the task: the retry of the third job waits for it too.
    assert await started(queue) == [0, 0, 0, 0, 20, 20]
    assert await states(jobs) == ["completed", "failed", "completed", "completed"]
    assert [job.attempts_made for job in jobs] == [1, 1, 2, 1]


@pytest.mark.parametrize(
    "wrong", [["one", "two"], ["one", "two", "three", "four"], [], "abc", {"a": 1}, 3, True], ids=repr
)
async def test_a_result_of_the_wrong_length_or_type_fails_all_jobs_and_says_what_was_expected(time, wrong):
    async def handler(jobs):
        return wrong

    jobs = await run_batch(time, handler)

    assert [job.state for job in jobs] == ["failed"] * 3
    for job in jobs:
        assert "ConfigError" in job.error
        assert "for 3 jobs" in job.error
        assert "one result per job" in job.error


async def test_a_raised_error_fails_all_jobs_and_uses_an_attempt_of_each(time):
    calls = []

    async def handler(jobs):
        calls.append(len(jobs))
        raise ConnectionError("down")

    jobs = await run_batch(time, handler, attempts=2, retry_delay="1s")

    assert calls == [3, 3]
    assert [(job.state, job.attempts_made, job.error) for job in jobs] == [("failed", 2, "ConnectionError: down")] * 3


async def test_a_raised_fail_ends_all_jobs_for_good(time):
    async def handler(jobs):
        raise Fail("the account is closed")

    jobs = await run_batch(time, handler, attempts=5)

    assert [(job.state, job.attempts_made, job.error) for job in jobs] == [("failed", 1, "the account is closed")] * 3


async def test_a_raised_rate_limit_returns_all_jobs_without_an_attempt(time):
    calls = []

    async def handler(jobs):
        calls.append((after(time.now()), [job.attempts_made for job in jobs]))
        if len(calls) == 1:
            raise RateLimited(retry_after="30s")

    jobs = await run_batch(time, handler)

    assert calls == [(0, [1, 1, 1]), (30, [1, 1, 1])]
    assert [job.state for job in jobs] == ["completed"] * 3


async def test_a_rate_limit_without_a_time_raised_for_a_batch_is_one_refusal_and_not_one_per_job(time):
    async def handler(jobs):
        if after(time.now()) == 0:
            raise RateLimited

    queue = Queue("line", store=time.store)
    await add(queue, 8)
    async with working(batch_worker(time, handler, batch=8)):
        await time.advance("20m")

    # The first refusal in a row holds for at least 1 s and less than 2 s.
    assert 1 <= (await started(queue))[8] < 2


async def test_none_completes_all_jobs_with_no_result(time):
    async def handler(jobs):
        return None

    jobs = await run_batch(time, handler)

    assert [(job.state, job.result_value) for job in jobs] == [("completed", None)] * 3


async def test_results_may_be_a_tuple_and_one_that_is_not_json_fails_its_job_alone(time):
    async def handler(jobs):
        return ("a", object(), None)

    jobs = await run_batch(time, handler)

    assert [job.state for job in jobs] == ["completed", "failed", "completed"]
    assert "NotSerializable" in jobs[1].error


async def test_a_batch_takes_one_slot(time):
    queue = Queue("line", store=time.store)
    running = most = 0

    async def handler(jobs):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await time.sleep("500ms")
        running -= 1

    await add(queue, 9)
    async with working(batch_worker(time, handler, concurrency=2)):
        await time.advance("10s")

    assert most == 2
    assert await started(queue) == [0] * 6 + [0.5] * 3


async def test_jobs_of_a_batch_come_by_priority(time):
    queue = Queue("line", store=time.store)
    calls = []

    async def handler(jobs):
        calls.append([job.data for job in jobs])

    for name, priority in (("low", 9), ("high", 1), ("medium", 5)):
        await queue.add("work", name, priority=priority)
    async with working(batch_worker(time, handler)):
        await time.advance(0)

    assert calls == [["high", "medium", "low"]]


async def test_every_job_of_a_batch_counts_for_rate_concurrency_and_group_limits(time):
    queue = Queue("line", store=time.store, limits=[Limit("service", Concurrency(5), tasks=["work"])])
    sizes = []

    async def handler(jobs):
        sizes.append((after(time.now()), Counter(job.group for job in jobs)))
        await time.sleep("2s")

    for group in ("a", "b", "c"):
        await add(queue, 4, group=group)
    worker = batch_worker(time, handler, batch=10, limiter=Rate(8, per="10s"), group=GroupLimits(concurrency=2))
    async with working(worker):
        await time.advance("11s")

    # Five by the service, two per group; then three by the worker's rate; then the next ten seconds.
    assert sizes == [(0, {"a": 2, "b": 2, "c": 1}), (2, {"c": 1, "a": 1, "b": 1}), (10, {"c": 2, "a": 1, "b": 1})]


async def test_the_timeout_of_a_batch_is_the_shortest_of_its_jobs_and_stops_the_handler(time):
    queue = Queue("line", store=time.store)
    jobs = [await queue.add("work", timeout=timeout) for timeout in ("9s", "2s", None)]

    async with working(batch_worker(time, takes(time, "1h"))):
        await time.advance("5s")

    assert await states(jobs) == ["failed"] * 3
    assert [after(job.finished_at) for job in jobs] == [2, 2, 2]
    assert {job.error for job in jobs} == {"TimeoutError: timed out after 2s"}


async def test_all_leases_of_a_long_batch_are_kept(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)
    crew = [batch_worker(time, takes(time, "1m"), lease="2s") for _ in range(2)]

    async with working(*crew):
        await time.advance("59s")
        assert await states(jobs) == ["active"] * 3
        await time.advance("1s")

    assert await states(jobs) == ["completed"] * 3
    assert [job.crashes for job in jobs] == [0, 0, 0]
    assert await started(queue) == [0, 0, 0]


async def test_a_batch_is_handed_back_as_a_whole_when_the_worker_stops(time):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)

    async with working(batch_worker(time, takes(time, "1h"))):
        await time.advance("5s")

    assert [(job.state, job.attempts_made) for job in [await job.refresh() for job in jobs]] == [("waiting", 0)] * 3


async def test_progress_of_a_job_in_a_batch_is_its_own_and_current_job_refuses_to_guess(time):
    async def handler(jobs):
        await jobs[1].progress(40, "second")
        with pytest.raises(LookupError, match="batch"):
            current_job()
        await time.sleep("10s")

    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)
    async with working(batch_worker(time, handler)):
        await time.advance("5s")
        assert [float((await job.refresh()).progress) for job in jobs] == [0, 40, 0]


async def test_a_plain_batch_handler_runs_in_a_thread(time):
    def handler(jobs):
        return [job.data + 1 for job in jobs]

    jobs = await run_batch(time, handler)

    assert [await job.result() for job in jobs] == [1, 2, 3]
