"""Limits by job type and by service (feature map B, seed 001 with its two tables and its exercises)."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline import App, Concurrency, Limit, Queue, Rate, Worker

from .helpers import Running, add, after, fullest_window, nothing, seconds, started, states, takes, working

RATE_LIMITS = {"send_webhook": 30, "sync_inventory": 60, "send_email": 120}
SERVICE_LIMITS = {
    "email_provider": (["send_email", "send_digest", "send_notification"], 120),
    "payment_gateway": (["charge_card", "refund", "retry_payment"], 60),
}


def per_minute(limits: dict[str, int]) -> list[Limit]:
    """One limit for each job type."""
    return [Limit(task, Rate(most, per="1m"), tasks=[task]) for task, most in limits.items()]


async def starts_of(queue: Queue, *tasks: str) -> list[float]:
    return seconds(start for start in await queue.starts() if start.task in tasks)


# B1, a limit for each job type


async def test_b1_the_table_rate_limits_holds_exactly_for_every_type(time):
    queue = Queue("jobs", store=time.store, limits=per_minute(RATE_LIMITS))
    await queue.add_many([(task, place) for place in range(400) for task in RATE_LIMITS])

    async with working(Worker("jobs", nothing, store=time.store, concurrency=10)):
        await time.advance("2m")

    for task, most in RATE_LIMITS.items():
        assert Counter(await starts_of(queue, task)) == {0: most, 60: most, 120: most}, task


async def test_b1_a_type_without_a_limit_is_not_limited(time):
    queue = Queue("jobs", store=time.store, limits=per_minute(RATE_LIMITS))
    await add(queue, 300, "make_report")

    async with working(Worker("jobs", nothing, store=time.store, concurrency=10)):
        await time.advance(0)

    assert await started(queue) == [0] * 300


async def test_b1_the_limit_of_a_type_lives_in_the_store_and_holds_for_all_workers(time):
    queue = Queue("jobs", store=time.store, limits=per_minute({"send_webhook": 30}))
    await add(queue, 90, "send_webhook")

    async with working(*(Worker("jobs", nothing, store=time.store, concurrency=10) for _ in range(4))):
        await time.advance("2m")

    assert await started(queue) == [0] * 30 + [60] * 30 + [120] * 30


async def test_b1_a_limit_of_a_type_counts_its_jobs_in_every_queue_together(time):
    limit = Limit("webhook", Rate(3, per="1m"), tasks=["send_webhook"])
    first = Queue("first", store=time.store, limits=[limit])
    second = Queue("second", store=time.store, limits=[limit])
    await add(first, 4, "send_webhook")
    await add(second, 4, "send_webhook")

    async with working(Worker(["first", "second"], nothing, store=time.store, concurrency=10)):
        await time.advance("2m")

    assert seconds(time.starts("send_webhook")) == [0] * 3 + [60] * 3 + [120] * 2


async def test_b1_a_limit_for_one_queue_does_not_touch_the_same_type_in_another(time):
    limit = Limit("webhook", Rate(1, per="1m"), tasks=["send_webhook"], queues=["first"])
    first = Queue("first", store=time.store, limits=[limit])
    second = Queue("second", store=time.store)
    await add(first, 2, "send_webhook")
    await add(second, 2, "send_webhook")

    async with working(Worker(["first", "second"], nothing, store=time.store, concurrency=10)):
        await time.advance("1m")

    assert await started(first) == [0, 60]
    assert await started(second) == [0, 0]


# B2, one limit for all types that call one service


async def test_b2_the_table_service_limits_holds_exactly_for_every_service(time):
    limits = [Limit(name, Rate(most, per="1m"), tasks=types) for name, (types, most) in SERVICE_LIMITS.items()]
    queue = Queue("jobs", store=time.store, limits=limits)
    for types, most in SERVICE_LIMITS.values():
        await queue.add_many([(task, place) for place in range(most) for task in types])

    async with working(Worker("jobs", nothing, store=time.store, concurrency=10)):
        await time.advance("2m")

    for types, most in SERVICE_LIMITS.values():
        assert await starts_of(queue, *types) == [0] * most + [60] * most + [120] * most
        # The types were added in turn, so each has its third of every minute.
        for task in types:
            assert Counter(await starts_of(queue, task)) == {0: most // 3, 60: most // 3, 120: most // 3}


async def test_b2_a_type_under_its_own_limit_and_its_services_limit_meets_both(time):
    queue = Queue(
        "jobs",
        store=time.store,
        limits=[
            Limit("digest", Rate(1, per="1m"), tasks=["send_digest"]),
            Limit("email_provider", Rate(3, per="1m"), tasks=["send_email", "send_digest"]),
        ],
    )
    await add(queue, 2, "send_digest")
    await add(queue, 4, "send_email")

    async with working(Worker("jobs", nothing, store=time.store, concurrency=10)):
        await time.advance("1m")

    assert await starts_of(queue, "send_digest") == [0, 60]
    assert await starts_of(queue, "send_email") == [0, 0, 60, 60]


async def test_b2_a_service_may_be_limited_by_concurrency_over_all_its_types(time):
    limit = Limit("email_provider", Concurrency(2), tasks=["send_email", "send_digest"])
    queue = Queue("jobs", store=time.store, limits=[limit])
    running = Running(time, "1s", by=lambda job: job.task == "other")
    await queue.add_many([(task, None) for _ in range(4) for task in ("send_email", "send_digest", "other")])

    async with working(*(Worker("jobs", running, store=time.store, concurrency=10) for _ in range(2))):
        await time.advance("10s")

    assert running.most_of == {False: 2, True: 4}
    assert await starts_of(queue, "send_email", "send_digest") == [0, 0, 1, 1, 2, 2, 3, 3]


# B3, a limited type does not stop the others


async def test_b3_a_thousand_limited_jobs_in_front_do_not_delay_another_type(time):
    queue = Queue("jobs", store=time.store, limits=per_minute({"send_webhook": 30}))
    webhooks = await add(queue, 1000, "send_webhook")
    others = await add(queue, 5, "make_report")

    async with working(Worker("jobs", nothing, store=time.store)):
        await time.advance("10s")
        assert await states(others) == ["completed"] * 5
        late = await queue.add("make_report")
        await time.advance(0)

        assert after((await late.refresh()).started_at) == 10
        assert Counter(await states(webhooks)) == {"completed": 30, "waiting": 970}
    assert await starts_of(queue, "make_report") == [0] * 5 + [10]


async def test_b3_a_limited_job_is_not_moved_or_delayed_and_starts_when_its_own_window_opens(time):
    queue = Queue("jobs", store=time.store, limits=per_minute({"send_webhook": 1}))
    first, second = await add(queue, 2, "send_webhook")

    async with working(Worker("jobs", nothing, store=time.store)):
        await time.advance("59.999999s")
        assert (await second.refresh()).state == "waiting"
        assert (await second.refresh()).attempts_made == 0
        await time.advance("1us")

        assert after((await second.refresh()).started_at) == after((await first.refresh()).started_at) + 60


async def test_b3_two_limited_types_each_start_at_their_own_instants(time):
    queue = Queue(
        "jobs",
        store=time.store,
        limits=[Limit("a", Rate(1, per="3s"), tasks=["a"]), Limit("b", Rate(1, per="2s"), tasks=["b"])],
    )
    await queue.add_many([(task, None) for _ in range(3) for task in ("a", "b")])

    async with working(Worker("jobs", nothing, store=time.store)):
        await time.advance("10s")

    assert await starts_of(queue, "a") == [0, 3, 6]
    assert await starts_of(queue, "b") == [0, 2, 4]


# B4, every start counts


async def test_b4_jobs_that_run_in_parallel_are_counted_when_they_start(time):
    queue = Queue("jobs", store=time.store, limits=per_minute({"send_webhook": 5}))
    await add(queue, 12, "send_webhook")

    async with working(Worker("jobs", takes(time, "90s"), store=time.store, concurrency=50)):
        await time.advance("5m")

    assert await started(queue) == [0] * 5 + [60] * 5 + [120] * 2


async def test_b4_jobs_that_fail_are_counted_too(time):
    queue = Queue("jobs", store=time.store, limits=per_minute({"send_webhook": 5}))
    jobs = await add(queue, 8, "send_webhook")

    async def fails(job):
        raise ConnectionError("429")

    async with working(Worker("jobs", fails, store=time.store, concurrency=50)):
        await time.advance("59s")
        assert Counter(await states(jobs)) == {"failed": 5, "waiting": 3}
        await time.advance("1s")

    assert await started(queue) == [0] * 5 + [60] * 3


# B5 and B6, the exercises


async def test_b5_exercise_1_of_twenty_jobs_five_run_in_the_first_minute(time):
    app = App(time.store)
    app.limit("webhook", Rate(5, per="1m"), tasks=["send_webhook"])
    ran = []

    @app.task()
    async def send_webhook(number: int) -> None:
        ran.append(number)

    await send_webhook.enqueue_many(range(20))
    async with working(app.worker()):
        await time.advance("59.999999s")
        assert ran == [0, 1, 2, 3, 4]
        await time.advance("1us")
        assert ran == list(range(10))
        await time.advance("2m")

    assert ran == list(range(20))
    assert seconds(time.starts()) == [0] * 5 + [60] * 5 + [120] * 5 + [180] * 5


async def test_b6_exercise_2_two_types_with_two_limits_each_keep_their_own(time):
    app = App(time.store)
    app.limit("webhook", Rate(5, per="1m"), tasks=["send_webhook"])
    app.limit("email", Rate(8, per="30s"), tasks=["send_email"])

    @app.task()
    async def send_webhook(number: int) -> None: ...

    @app.task()
    async def send_email(number: int) -> None: ...

    await send_webhook.enqueue_many(range(12))
    await send_email.enqueue_many(range(20))
    async with working(app.worker()):
        await time.advance("2m")

    assert seconds(time.starts("send_webhook")) == [0] * 5 + [60] * 5 + [120] * 2
    assert seconds(time.starts("send_email")) == [0] * 8 + [30] * 8 + [60] * 4


@pytest.mark.parametrize("workers", [1, 3])
async def test_b6_each_limit_is_kept_in_every_window_by_several_workers_with_long_jobs(time, workers):
    limits = [Limit("a", Rate(3, per="10s"), tasks=["a"]), Limit("b", Rate(4, per="7s"), tasks=["b"])]
    queue = Queue("jobs", store=time.store, limits=limits)
    await queue.add_many([(task, None) for _ in range(15) for task in ("a", "b")])
    crew = [Worker("jobs", takes(time, "2.5s"), store=time.store, concurrency=10) for _ in range(workers)]

    async with working(*crew):
        await time.advance("2m")

    starts = await queue.starts()
    assert fullest_window([start for start in starts if start.task == "a"], 10) == 3
    assert fullest_window([start for start in starts if start.task == "b"], 7) == 4
    assert await starts_of(queue, "a") == [10 * (place // 3) for place in range(15)]
    assert await starts_of(queue, "b") == [7 * (place // 4) for place in range(15)]


# what surrounds them: a job that nobody can run


async def test_a_job_whose_task_no_worker_knows_stays_waiting_and_explain_says_so(time):
    app = App(time.store)

    @app.task()
    async def known() -> str:
        return "done"

    unknown = await app.queue().add("unknown", {"args": [], "kwargs": {}})
    job = await known.enqueue()
    async with working(app.worker()):
        await time.advance("1m")

        assert (await unknown.refresh()).state == "waiting"
        assert "unknown" in (await unknown.explain()).text
        assert "worker" in (await unknown.explain()).text
    assert await job.result() == "done"
