"""What a handler says about its own job: RateLimited, Retry and Fail, and the holds that follow."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from paceline import App, Fail, JobFailed, Queue, Rate, RateLimited, Retry, Worker

from .helpers import add, after, refuses_first, started, states, working


@pytest.fixture
def app(time) -> App:
    return App(time.store)


# who is held by a RateLimited


async def test_a_rate_limited_job_goes_back_without_an_attempt_and_its_limit_is_held_for_everybody(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send", "fetch"])
    queue, other_queue = app.queue("line"), app.queue("other")
    jobs = await add(queue, 3, "send")
    handler = refuses_first(RateLimited(retry_after=30))

    async with working(Worker("line", handler, store=time.store)):
        await time.advance(0)
        first = await jobs[0].refresh()
        assert (first.state, first.attempts_made) == ("waiting", 0)
        assert after((await app.limit_state("service")).held_until) == 30
        # For a second worker, and for another task in another queue under the same limit.
        async with working(Worker(["line", "other"], handler, store=time.store, concurrency=9)):
            await other_queue.add("fetch")
            await time.advance("1h")

    assert (await started(queue), await started(other_queue)) == ([0, 30, 30, 30], [30])
    assert [await job.result() for job in jobs] == ["done"] * 3
    assert [job.attempts_made for job in jobs] == [1, 1, 1]


async def test_a_rate_limited_job_goes_back_to_its_place(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")
    order = []

    async def handler(job):
        order.append((job.data, job.attempts_made))
        if len(order) == 1:
            raise RateLimited(retry_after="10s")

    await add(queue, 3, "send")
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1m")

    assert order == [(0, 1), (0, 1), (1, 1), (2, 1)]
    assert await started(queue) == [0, 10, 10, 10]


async def test_all_limits_that_list_the_task_are_held_and_no_others(time, app):
    app.limit("a", Rate(100, per="1s"), tasks=["send", "x"])
    app.limit("b", Rate(100, per="1s"), tasks=["send", "y"])
    app.limit("c", Rate(100, per="1s"), tasks=["z"])
    app.limit("everything", Rate(100, per="1s"))
    queue = app.queue("line")
    await queue.add("send")

    async with working(Worker("line", refuses_first(RateLimited(retry_after=30)), store=time.store)):
        await time.advance(0)
        for task in ("x", "y", "z", "other"):
            await queue.add(task)
        await time.advance("1m")

    assert {start.task: after(start.at) for start in await queue.starts()} == {
        "send": 30,
        "x": 30,
        "y": 30,
        "z": 0,
        "other": 0,
    }
    assert [(await app.limit_state(name)).held_until for name in ("c", "everything")] == [None, None]


async def test_without_a_limit_that_lists_it_only_this_task_in_this_queue_is_held(time, app):
    app.limit("everything", Rate(100, per="1s"))
    app.limit("tenant", Rate(100, per="1s"), tasks=["send"], by="group")
    here, there = app.queue("here"), app.queue("there")
    await here.add("send", group="a")

    async with working(Worker(["here", "there"], refuses_first(RateLimited(retry_after=30)), store=time.store)):
        await time.advance(0)
        await here.add("send", group="b")
        await here.add("fetch", group="a")
        await there.add("send", group="a")
        await time.advance("1m")

    assert [(start.task, after(start.at)) for start in await here.starts()] == [
        ("send", 0),
        ("fetch", 0),
        ("send", 30),
        ("send", 30),
    ]
    assert await started(there) == [0]


async def test_a_named_limit_is_held_alone(time, app):
    app.limit("a", Rate(100, per="1s"), tasks=["send", "x"])
    app.limit("b", Rate(100, per="1s"), tasks=["send", "y"])
    queue = app.queue("line")
    await queue.add("send")

    async with working(Worker("line", refuses_first(RateLimited(retry_after=30, limit="a")), store=time.store)):
        await time.advance(0)
        await queue.add("x")
        await queue.add("y")
        await time.advance("1m")

    assert {start.task: after(start.at) for start in await queue.starts()} == {"send": 30, "x": 30, "y": 0}


async def test_a_named_per_group_limit_is_held_for_the_group_of_the_job(time, app):
    app.limit("tenant", Rate(100, per="1s"), by="group")
    queue = app.queue("line")
    await queue.add("send", group="a")

    async with working(Worker("line", refuses_first(RateLimited(retry_after=30, limit="tenant")), store=time.store)):
        await time.advance(0)
        await queue.add("fetch", group="a")
        await queue.add("send", group="b")
        await queue.add("send")
        await time.advance("1m")

    assert [(start.task, start.group, after(start.at)) for start in await queue.starts()] == [
        ("send", "a", 0),
        ("send", "b", 0),
        ("send", None, 0),
        ("send", "a", 30),
        ("fetch", "a", 30),
    ]


async def test_a_named_per_group_limit_and_a_job_without_a_group_hold_back_the_job_all_the_same(time, app):
    app.limit("tenant", Rate(100, per="1s"), by="group")
    queue = app.queue("line")
    job = await queue.add("send")

    async with working(Worker("line", refuses_first(RateLimited(retry_after=30, limit="tenant")), store=time.store)):
        await time.advance("29s")
        assert (await states([job]), job.attempts_made) == (["waiting"], 0)
        await time.advance("1s")

    assert await started(queue) == [0, 30]


async def test_a_named_limit_for_every_job_holds_every_job(time, app):
    app.limit("everything", Rate(100, per="1s"))
    first, second = app.queue("first"), app.queue("second")
    await first.add("send")

    handler = refuses_first(RateLimited(retry_after=30, limit="everything"))
    async with working(Worker(["first", "second"], handler, store=time.store)):
        await time.advance(0)
        await second.add("other")
        await time.advance("1m")

    assert (await started(first), await started(second)) == ([0, 30], [30])


# what a hold is


async def test_the_start_of_a_rate_limited_job_stays_charged(time, app):
    app.limit("service", Rate(1, per="1m"), tasks=["send"])
    queue = app.queue("line")
    await queue.add("send")

    async with working(Worker("line", refuses_first(RateLimited(retry_after=1)), store=time.store)):
        await time.advance("5m")

    assert await started(queue) == [0, 60]


async def test_a_hold_only_grows_and_is_not_wiped_by_the_success_of_others(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")

    async def handler(job):
        if job.attempts_made == 1 and after(time.now()) < 10:
            await time.sleep(job.data[0])
            if job.data[1]:
                raise RateLimited(retry_after=job.data[1])

    for data in (("1s", 30), ("2s", 5), ("3s", None)):
        await queue.add("send", data)
    async with working(Worker("line", handler, store=time.store, concurrency=3)):
        await time.advance("2m")

    # Held until 31 by the first, asked for less by the second, ignored by the success of the third.
    assert await started(queue) == [0, 0, 0, 31, 31]


async def test_a_response_says_how_long_to_wait(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")
    refused = RateLimited.from_response(429, {"Retry-After": "120"})
    await queue.add("send")

    async with working(Worker("line", refuses_first(refused), store=time.store)):
        await time.advance("10m")

    assert await started(queue) == [0, 120]


async def test_a_job_that_comes_back_too_often_fails_and_says_so(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("send", attempts=5)
    seen = []

    async def always(job):
        seen.append(job.attempts_made)
        raise RateLimited(retry_after="1s")

    async with working(Worker("line", always, store=time.store, max_returns=3)):
        await time.advance("1m")

    # Three times it came back, the fourth time it fails; every run was the first attempt.
    assert await started(queue) == [0, 1, 2, 3]
    assert seen == [1, 1, 1, 1]
    assert await states([job]) == ["failed"]
    assert "max_returns=3" in job.error


async def test_a_job_may_come_back_a_hundred_times_by_default(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("send")

    async with working(
        Worker("line", refuses_first(*[RateLimited(retry_after="1s") for _ in range(100)]), store=time.store)
    ):
        await time.advance("5m")
    assert await job.result() == "done"

    other = await queue.add("send")
    async with working(
        Worker("line", refuses_first(*[RateLimited(retry_after="1s") for _ in range(101)]), store=time.store)
    ):
        await time.advance("5m")
    with pytest.raises(JobFailed, match="max_returns=100"):
        await other.result()


async def test_a_rate_limit_in_a_thread_is_the_same(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")
    job = await queue.add("send")
    refusals = [RateLimited(retry_after="7s")]

    def handler(job):
        if refusals:
            raise refusals.pop()

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1m")

    assert (await states([job]), job.attempts_made) == (["completed"], 1)
    assert await started(queue) == [0, 7]


# Retry


@pytest.mark.parametrize(
    ("verdict", "due"),
    [
        (lambda now: Retry(after="10s"), 10),
        (lambda now: Retry("10s"), 10),
        (lambda now: Retry(after=timedelta(minutes=2)), 120),
        (lambda now: Retry(after=0), 0),
        (lambda now: Retry(at=now + timedelta(seconds=45)), 45),
        (lambda now: Retry(at=now - timedelta(days=1)), 0),
        (lambda now: Retry(at=now), 0),
        (lambda now: Retry(), 0),
        (lambda now: Retry, 0),
    ],
    ids=["after", "positional", "timedelta", "after zero", "at", "at the past", "at now", "no time", "the class"],
)
async def test_retry_asks_for_another_attempt_at_exactly_its_time(time, verdict, due):
    queue = Queue("line", store=time.store)
    job = await queue.add("send", attempts=2, retry_delay="1h")

    async with working(Worker("line", refuses_first(verdict(time.now())), store=time.store)):
        await time.advance("2h")

    assert await started(queue) == [0, due]
    assert (await job.result(), job.attempts_made) == ("done", 2)


async def test_a_retried_job_is_delayed_until_its_time_and_says_why(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("send", attempts=2)

    async with working(Worker("line", refuses_first(Retry(after="1m", reason="file not there")), store=time.store)):
        await time.advance("1s")
        await job.refresh()

        assert (job.state, after(job.due_at), job.attempts_made, job.error) == ("delayed", 60, 1, "file not there")


async def test_retry_without_a_time_is_due_at_the_latest_next_start_of_the_jobs_limits(time, app):
    app.limit("slow", Rate(1, per="5m"), tasks=["send"])
    app.limit("fast", Rate(1, per="1m"), tasks=["send"])
    app.limit("other", Rate(1, per="1h"), tasks=["fetch"])
    queue = app.queue("line")
    job = await queue.add("send", attempts=2)

    async with working(Worker("line", refuses_first(Retry()), store=time.store)):
        await time.advance("1s")
        assert (await states([job]), after(job.due_at)) == (["delayed"], 300)
        await time.advance("10m")

    assert await started(queue) == [0, 300]


async def test_retry_with_no_attempt_left_fails_the_job(time):
    queue = Queue("line", store=time.store)
    job = await queue.add("send", attempts=2)

    async def never_ready(job):
        raise Retry(after="1s", reason="file not there")

    async with working(Worker("line", never_ready, store=time.store)):
        await time.advance("1h")

    assert await started(queue) == [0, 1]
    assert (await states([job]), job.attempts_made) == (["failed"], 2)
    assert "file not there" in job.error


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: Retry(at=datetime(2030, 1, 1)), "at=datetime.datetime(2030, 1, 1, 0, 0) is wrong"),
        (lambda: Retry(after="5 parsecs"), "after='5 parsecs' is wrong"),
        (lambda: Retry(after=-1), "after=-1 is wrong"),
        (lambda: Retry(after=1, at=datetime(2030, 1, 1)), "give one of them"),
        (lambda: RateLimited(retry_after=-1), "retry_after=-1 is wrong"),
        (lambda: RateLimited(limit=""), "limit='' is wrong"),
    ],
)
async def test_a_wrong_verdict_fails_the_attempt_with_a_config_error_that_names_the_value(time, wrong, text):
    queue = Queue("line", store=time.store)
    job = await queue.add("send")

    async def handler(job):
        raise wrong()

    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1h")

    assert await states([job]) == ["failed"]
    assert "ConfigError" in job.error
    assert text in job.error


async def test_a_rate_limit_that_names_an_unknown_limit_fails_the_attempt_and_holds_nothing(time, app):
    app.limit("service", Rate(100, per="1s"), tasks=["send"])
    queue = app.queue("line")
    job = await queue.add("send")

    async with working(Worker("line", refuses_first(RateLimited(retry_after=30, limit="servcie")), store=time.store)):
        await time.advance("1s")

    assert await states([job]) == ["failed"]
    assert "'servcie'" in job.error
    assert "service" in job.error
    assert (await app.limit_state("service")).held_until is None


# Fail


@pytest.mark.parametrize("verdict", [Fail("the account is closed"), Fail(ValueError("the account is closed"))])
async def test_fail_ends_a_job_for_good_whatever_attempts_are_left(time, verdict):
    queue = Queue("line", store=time.store)
    job = await queue.add("send", attempts=5, retry_delay="1s")

    async with working(Worker("line", refuses_first(verdict), store=time.store)):
        await time.advance("1h")

    assert await started(queue) == [0]
    assert (await states([job]), job.attempts_made, job.error) == (["failed"], 1, "the account is closed")
    with pytest.raises(JobFailed, match="the account is closed"):
        await job.result()
