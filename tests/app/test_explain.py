"""`explain`: why a job is where it is, in one sentence and as data."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import App, Blocked, Concurrency, Delay, Explanation, JobNotFound, Rate, RateLimited
from paceline.testing import VirtualTime

from .conftest import Timeline


async def noop() -> None: ...


async def start_what_may(app: App, time: VirtualTime) -> None:
    async with app.worker(concurrency=100):
        await time.advance(0)


def said(explanation: Explanation, job: Any) -> str:
    """The sentence without the id."""
    assert str(explanation) == explanation.text
    return explanation.text.replace(job.id, "X")


async def test_a_job_that_nothing_refuses_waits_for_a_slot_only(app: App, timeline: Timeline) -> None:
    job = await app.task(name="step")(noop).enqueue()
    explanation = await job.explain()
    assert isinstance(explanation, Explanation)
    assert (explanation.blocked_by, explanation.ahead, timeline.at(explanation.earliest_start)) == ([], 0, 0)
    assert said(explanation, job) == (
        "job X (step) is waiting: nothing refuses it: it starts as soon as a worker has a free slot"
    )
    assert await app.queue().explain(job.id) == explanation


async def test_a_full_rate_is_named_with_used_allowed_and_until(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(2, per="1m"))
    app.limit("roomy", Rate(100, per="1m"))
    jobs = await app.task(name="step")(noop).enqueue_many([()] * 3)
    await start_what_may(app, paceline_time)
    await paceline_time.advance("10s")
    explanation = await jobs[2].explain()
    (blocked,) = explanation.blocked_by
    assert isinstance(blocked, Blocked)
    assert (blocked.limit, blocked.used, blocked.allowed, timeline.at(blocked.until)) == ("email", 2, 2, 60)
    assert (explanation.ahead, timeline.at(explanation.earliest_start)) == (0, 60)
    assert said(explanation, jobs[2]) == (
        "job X (step) is waiting: limit 'email' is full, 2 of 2, for 50s; the earliest start is in 50s"
    )


async def test_every_limit_that_refuses_is_named_and_the_latest_decides(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("a-rate", Rate(1, per="1m"))
    app.limit("b-delay", Delay("90s"))
    app.limit("c-roomy", Concurrency(9))
    jobs = await app.task(name="step")(noop).enqueue_many([()] * 2)
    await start_what_may(app, paceline_time)
    explanation = await jobs[1].explain()
    assert [blocked.limit for blocked in explanation.blocked_by] == ["a-rate", "b-delay"]
    assert [timeline.at(blocked.until) for blocked in explanation.blocked_by] == [60, 90]
    assert timeline.at(explanation.earliest_start) == 90
    assert "'a-rate'" in explanation.text and "'b-delay'" in explanation.text and "1m30s" in explanation.text


async def test_a_full_concurrency_opens_when_something_finishes(app: App, paceline_time: VirtualTime) -> None:
    app.limit("slots", Concurrency(1))

    @app.task()
    async def step() -> None:
        await paceline_time.sleep("5s")

    jobs = await step.enqueue_many([()] * 2)
    async with app.worker():
        await paceline_time.advance("1s")
        explanation = await jobs[1].explain()
        await paceline_time.advance("10s")
    assert explanation.blocked_by == [Blocked("slots", 1, 1, None)]
    assert explanation.earliest_start is None
    assert said(explanation, jobs[1]) == (
        "job X (step) is waiting: limit 'slots' is full, 1 of 1, until something finishes"
    )


async def test_a_group_is_named_with_its_own_counter(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tenant", Rate(1, per="1m"), by="group")
    task = app.task(name="step")(noop)
    jobs = await task.using(group="acme").enqueue_many([()] * 2)
    free = await task.using(group="other").enqueue()
    await app.queue().pause(group="other")
    await start_what_may(app, paceline_time)
    await app.queue().resume(group="other")
    assert said(await jobs[1].explain(), jobs[1]) == (
        "job X (step) is waiting: limit 'tenant' of group 'acme' is full, 1 of 1, for 1m; the earliest start is in 1m"
    )
    assert (await free.explain()).blocked_by == []


async def test_a_hold_says_its_reason_and_its_end(app: App, timeline: Timeline) -> None:
    app.limit("email", Rate(5, per="1m"))
    await app.hold("email", for_="30s", reason="the provider asked for it")
    job = await app.task(name="step")(noop).enqueue()
    explanation = await job.explain()
    (blocked,) = explanation.blocked_by
    assert (blocked.limit, blocked.used, blocked.allowed, timeline.at(blocked.until)) == ("email", 0, 5, 30)
    assert said(explanation, job) == (
        "job X (step) is waiting: limit 'email' is held for 30s (the provider asked for it); "
        "the earliest start is in 30s"
    )


async def test_a_429_is_the_reason_of_its_hold(app: App, paceline_time: VirtualTime) -> None:
    app.limit("email", Rate(5, per="1m"), tasks=["step"])

    @app.task()
    async def step() -> None:
        raise RateLimited(30)

    job = await step.enqueue()
    await start_what_may(app, paceline_time)
    explanation = await job.explain()
    assert "held for 30s" in explanation.text and "429" in explanation.text and "'step'" in explanation.text


async def test_a_cost_that_does_not_fit_yet_is_said_as_such(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("tokens", Rate(10, per="1m"))
    task = app.task(name="step")(noop)
    await task.using(cost=6).enqueue()
    await start_what_may(app, paceline_time)
    job = await task.using(cost=5).enqueue()
    explanation = await job.explain()
    (blocked,) = explanation.blocked_by
    assert (blocked.used, blocked.allowed, timeline.at(blocked.until)) == (6, 10, 60)
    assert "no room for a cost of 5, 6 of 10 used" in explanation.text


@pytest.mark.parametrize(
    ("options", "what"),
    [({}, "queue 'default'"), ({"task": "step"}, "task 'step'"), ({"group": "acme"}, "group 'acme'")],
    ids=["queue", "task", "group"],
)
async def test_a_pause_is_said_and_no_start_is_foretold(app: App, options: dict[str, str], what: str) -> None:
    job = await app.task(name="step")(noop).using(group="acme").enqueue()
    await app.queue().pause(**options)
    explanation = await job.explain()
    assert said(explanation, job) == f"job X (step) is waiting: {what} is paused"
    assert (explanation.blocked_by, explanation.earliest_start) == ([], None)
    await app.queue().resume(**options)
    assert (await job.explain()).earliest_start is not None


async def test_a_delayed_job_says_when_it_is_due(app: App, timeline: Timeline) -> None:
    job = await app.task(name="step")(noop).using(delay="5m").enqueue()
    explanation = await job.explain()
    assert timeline.at(explanation.earliest_start) == 300
    assert said(explanation, job) == ("job X (step) is delayed: it is due in 5m; the earliest start is in 5m")


async def test_a_task_that_no_worker_knows_is_said(app: App, paceline_time: VirtualTime) -> None:
    app.task(name="step")(noop)
    job = await app.queue().add("stranger")
    async with app.worker():
        await paceline_time.advance("1s")
        explanation = await job.explain()
    assert said(explanation, job) == (
        "job X (stranger) is waiting: no worker of queue 'default' knows the task 'stranger'"
    )
    assert explanation.earliest_start is None


# who is ahead


async def test_ahead_counts_the_jobs_that_go_first(app: App) -> None:
    task = app.task(name="step")(noop)
    jobs = await task.enqueue_many([()] * 3)
    urgent = await task.using(priority=-1).enqueue()
    newest = await task.using(lifo=True).enqueue()
    await task.using(group="other").enqueue()
    await task.using(delay="1h").enqueue()
    ahead = [(await job.explain()).ahead for job in (urgent, newest, *jobs)]
    assert ahead == [0, 1, 2, 3, 4]
    assert "1 job of its group goes first" in (await newest.explain()).text
    assert "2 jobs of its group go first" in (await jobs[0].explain()).text


async def test_the_earliest_start_is_when_it_really_starts(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(2, per="1m"))
    jobs = await app.task(name="step")(noop).enqueue_many([()] * 7)
    await start_what_may(app, paceline_time)
    foretold = [timeline.at((await job.explain()).earliest_start) for job in jobs[2:]]
    async with app.worker(concurrency=100):
        await paceline_time.advance("10m")
    assert foretold == [timeline.at((await job.refresh()).started_at) for job in jobs[2:]] == [60, 60, 120, 120, 180]


async def test_the_earliest_start_of_a_fresh_backlog_counts_those_ahead(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(2, per="1m"))
    jobs = await app.task(name="step")(noop).enqueue_many([()] * 5)
    foretold = [timeline.at((await job.explain()).earliest_start) for job in jobs]
    async with app.worker(concurrency=100):
        await paceline_time.advance("10m")
    assert timeline.starts() == [0, 0, 60, 60, 120]
    assert foretold == [0, 0, 60, 60, 120]


async def test_the_earliest_start_is_right_when_the_window_opens_bit_by_bit(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(2, per="1m"))
    task = app.task(name="step")(noop)
    for _ in range(2):
        await task.enqueue()
        await start_what_may(app, paceline_time)
        await paceline_time.advance("20s")
    jobs = await task.enqueue_many([()] * 4)
    foretold = [timeline.at((await job.explain()).earliest_start) for job in jobs]
    async with app.worker(concurrency=100):
        await paceline_time.advance("10m")
    assert [timeline.at((await job.refresh()).started_at) for job in jobs] == [60, 80, 120, 140]
    assert foretold == [60, 80, 120, 140]


async def test_jobs_that_meet_other_limits_do_not_put_off_the_earliest_start(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(1, per="1m"), tasks=["mail"])
    mail = app.task(name="mail")(noop)
    await mail.enqueue()
    await start_what_may(app, paceline_time)
    await app.task(name="step")(noop).enqueue_many([()] * 5)
    job = await mail.enqueue()
    foretold = timeline.at((await job.explain()).earliest_start)
    async with app.worker():
        await paceline_time.advance("10m")
    assert timeline.at((await job.refresh()).started_at) == 60
    assert foretold == 60


async def test_jobs_that_are_blocked_by_another_limit_are_not_ahead(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(1, per="1h"), tasks=["mail"])
    await app.task(name="mail")(noop).enqueue_many([()] * 5)
    await start_what_may(app, paceline_time)
    job = await app.task(name="step")(noop).enqueue()
    explanation = await job.explain()
    assert (explanation.ahead, timeline.at(explanation.earliest_start)) == (0, 0)
    assert "go first" not in explanation.text


# jobs that do not wait


async def test_a_running_job_says_since_when_and_where(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    @app.task()
    async def step() -> None:
        await paceline_time.sleep("1m")

    job = await step.enqueue()
    async with app.worker(name="worker-1"):
        await paceline_time.advance("5s")
        explanation = await job.explain()
        await paceline_time.advance("2m")
    assert (explanation.blocked_by, explanation.ahead, timeline.at(explanation.earliest_start)) == ([], 0, 0)
    assert "5s" in explanation.text and "worker-1" in explanation.text


async def test_a_finished_job_says_how_it_ended(app: App, paceline_time: VirtualTime) -> None:
    @app.task()
    async def fail() -> None:
        raise ValueError("boom")

    good, bad = await app.task(name="step")(noop).enqueue(), await fail.enqueue()
    gone = await app.tasks["step"].using(delay="1h").enqueue()
    await gone.cancel()
    await start_what_may(app, paceline_time)
    explanations = [await job.explain() for job in (good, bad, gone)]
    assert [said(each, job) for each, job in zip(explanations, (good, bad, gone), strict=True)] == [
        "job X (step) completed 1ms ago in attempt 1 of 1, after it ran for 1ms",
        "job X (fail) failed 1ms ago in attempt 1 of 1, after it ran for 1ms: ValueError: boom",
        "job X (step) was cancelled 1ms ago",
    ]
    assert {each.earliest_start for each in explanations} == {None}


async def test_a_job_that_does_not_exist_is_an_error(app: App) -> None:
    job = await app.task(name="step")(noop).enqueue()
    await job.remove()
    with pytest.raises(JobNotFound, match=job.id):
        await job.explain()
    with pytest.raises(JobNotFound, match="nobody"):
        await app.queue().explain("nobody")
