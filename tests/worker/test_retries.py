"""Attempts and the delays between them: fixed, exponential, by a function of one's own (seed-systems 3.3, 3.6)."""

from __future__ import annotations

import pytest

from paceline import Exponential, Queue, Worker

from .helpers import add, after, started, states, working


async def test_a_job_is_tried_as_often_as_it_has_attempts_and_knows_which_one_runs(time):
    queue = Queue("line", store=time.store)
    attempts = []

    async def third_time_lucky(job):
        attempts.append(job.attempts_made)
        if job.attempts_made < 3:
            raise OSError("not yet")
        return "at last"

    job = await queue.add("work", attempts=3)
    async with working(Worker("line", third_time_lucky, store=time.store)):
        await time.advance(0)

    assert attempts == [1, 2, 3]
    assert await job.result() == "at last"
    assert (job.attempts_made, job.error) == (3, None)


@pytest.mark.parametrize(
    ("retry_delay", "due"),
    [
        (None, [0, 0, 0, 0]),
        (0, [0, 0, 0, 0]),
        ("200ms", [0, 0.2, 0.4, 0.6]),
        (Exponential("1s", jitter=0), [0, 1, 3, 7]),
        (Exponential("1s", cap="2s", jitter=0), [0, 1, 3, 5]),
        (lambda attempt: attempt * 10, [0, 10, 30, 60]),
        (lambda attempt: ["1s", "0s", "1h"][attempt - 1], [0, 1, 1, 3601]),
    ],
    ids=["none", "zero", "fixed", "exponential", "capped", "own function", "own function of texts"],
)
async def test_attempts_are_due_exactly_when_the_retry_delay_says(time, retry_delay, due):
    queue = Queue("line", store=time.store)

    async def fails(job):
        raise OSError("down")

    job = await queue.add("work", attempts=4, retry_delay=retry_delay)
    async with working(Worker("line", fails, store=time.store)):
        await time.advance("2h")

    assert await started(queue) == due
    assert await states([job]) == ["failed"]
    assert job.attempts_made == 4


async def test_the_delay_counts_from_the_end_of_the_failed_attempt_and_the_job_is_delayed_meanwhile(time):
    queue = Queue("line", store=time.store)

    async def fails(job):
        await time.sleep("3s")
        raise OSError("down")

    job = await queue.add("work", attempts=2, retry_delay="10s")
    async with working(Worker("line", fails, store=time.store)):
        await time.advance("5s")
        await job.refresh()
        assert (job.state, after(job.due_at), job.attempts_made, job.error) == ("delayed", 13, 1, "OSError: down")
        await time.advance("1m")

    assert await started(queue) == [0, 13]


async def test_exponential_delays_are_spread_by_a_quarter_either_way(time):
    queue = Queue("line", store=time.store)

    async def fails(job):
        raise OSError("down")

    jobs = await add(queue, 200, attempts=2, retry_delay=Exponential("1s"))
    async with working(Worker("line", fails, store=time.store, concurrency=200)):
        await time.advance(0)

    waits = [after((await job.refresh()).due_at) for job in jobs]
    assert 0.75 <= min(waits) < 0.85
    assert 1.15 < max(waits) <= 1.25


async def test_a_job_that_waits_for_its_next_attempt_does_not_keep_the_slot(time):
    queue = Queue("line", store=time.store)

    async def first_fails(job):
        if job.data == 0 and job.attempts_made == 1:
            raise OSError("down")

    jobs = await add(queue, 3, attempts=2, retry_delay="1h")
    async with working(Worker("line", first_fails, store=time.store)):
        await time.advance(0)
        assert await states(jobs) == ["delayed", "completed", "completed"]
        await time.advance("1h")

    assert await states(jobs) == ["completed"] * 3
