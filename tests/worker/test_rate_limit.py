"""A rate limit on a worker (feature map A, seed 000, and the cases of seed-systems 3.1 as equalities)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import (
    Concurrency,
    ConfigError,
    Delay,
    EvenlySpaced,
    GroupLimits,
    Limiter,
    Queue,
    Rate,
    Worker,
)
from paceline.testing import virtual_time

from .helpers import Running, add, after, fullest_window, nothing, seconds, started, states, takes, working

# A1, max per duration


async def test_a1_two_of_five_jobs_start_in_a_window_of_three_seconds(time):
    queue = Queue("api", store=time.store)
    worker = Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(2, per="3s"))
    jobs = await add(queue, 5)

    async with working(worker):
        await time.advance("2s")

        assert await states(jobs) == ["completed", "completed", "waiting", "waiting", "waiting"]


async def test_a1_the_next_two_jobs_start_when_the_window_is_over_and_so_on(time):
    queue = Queue("api", store=time.store)
    worker = Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(2, per="1.5s"))
    await add(queue, 5)

    async with working(worker):
        await time.advance("5s")

    assert await started(queue) == [0, 0, 1.5, 1.5, 3]


async def test_a1_without_a_limiter_all_jobs_start_at_once(time):
    queue = Queue("api", store=time.store)
    await add(queue, 50)

    async with working(Worker("api", nothing, store=time.store, concurrency=10)):
        await time.advance(0)

    assert await started(queue) == [0] * 50


@pytest.mark.parametrize(("most", "per", "seconds_per"), [(10, "1s", 1), (100, "1m", 60)])
async def test_a1_quick_examples_of_the_seed_10_per_second_and_100_per_minute(time, most, per, seconds_per):
    queue = Queue("emails", store=time.store)
    await add(queue, 3 * most)

    async with working(Worker("emails", nothing, store=time.store, limiter=Rate(most, per=per))):
        await time.advance(3 * seconds_per)

    assert await started(queue) == [0] * most + [seconds_per] * most + [2 * seconds_per] * most


@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        (Delay("250ms"), [0, 0.25, 0.5, 0.75, 1]),
        (EvenlySpaced(10, per="1s"), [0, 0.1, 0.2, 0.3, 0.4]),
        (Rate(2, per="1s") & Delay("100ms"), [0, 0.1, 1, 1.1, 2]),
        (Rate("3/min"), [0, 0, 0, 60, 60]),
    ],
)
async def test_a1_every_kind_limits_a_worker(time, kind, starts):
    queue = Queue("api", store=time.store)
    await add(queue, 5)

    async with working(Worker("api", nothing, store=time.store, concurrency=10, limiter=kind)):
        await time.advance("2m")

    assert await started(queue) == starts


async def test_a1_a_job_that_costs_three_takes_three_of_the_workers_rate(time):
    queue = Queue("api", store=time.store)
    for cost in (3, 2, 1, 4):
        await queue.add("call", cost=cost)

    async with working(Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(5, per="1s"))):
        await time.advance("10s")

    # 3 + 2 fill the first window, 1 + 4 the second.
    assert await started(queue) == [0, 0, 1, 1]


# A2, with concurrency


async def test_a2_five_at_a_time_and_twenty_per_second_bind_together(time):
    queue = Queue("webhooks", store=time.store)
    running = Running(time, "100ms")
    worker = Worker("webhooks", running, store=time.store, concurrency=5, limiter=Rate(20, per="1s"))
    await add(queue, 50)

    async with working(worker):
        await time.advance("3s")

    # Concurrency makes steps of 100 ms; the rate stops the fifth step until the first second is over.
    assert (
        await started(queue)
        == [at for second in (0, 1, 2) for step in (0, 0.1, 0.2, 0.3) for at in [second + step] * 5][:50]
    )
    assert running.most == 5


async def test_a2_long_jobs_are_bound_by_concurrency_and_not_by_the_rate(time):
    queue = Queue("webhooks", store=time.store)
    worker = Worker("webhooks", takes(time, "10s"), store=time.store, concurrency=5, limiter=Rate(20, per="1s"))
    await add(queue, 12)

    async with working(worker):
        await time.advance("30s")

    assert await started(queue) == [0] * 5 + [10] * 5 + [20] * 2


async def test_a2_a_concurrency_of_the_workers_own_counts_handlers_until_they_have_ended(time):
    queue = Queue("webhooks", store=time.store)
    running = Running(time, "10s")
    await add(queue, 6, timeout="1s")

    async with working(Worker("webhooks", running, store=time.store, concurrency=10, limiter=Concurrency(2))):
        await time.advance("1m")

    assert await started(queue) == [0, 0, 1, 1, 2, 2]
    assert running.most == 2


# A3, scope


@pytest.mark.parametrize(("workers", "most", "total"), [(1, 10, 10), (3, 10, 30), (3, 3, 9)])
async def test_a3_scope_table_of_the_seed_as_equalities(time, workers, most, total):
    queue = Queue("api", store=time.store)
    crew = [
        Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(most, per="1s")) for _ in range(workers)
    ]
    await add(queue, 5 * total)

    async with working(*crew):
        await time.advance("4s")

    assert Counter(await started(queue)) == {0: total, 1: total, 2: total, 3: total, 4: total}


async def test_a3_a_limit_on_the_queue_holds_for_three_workers_together(time):
    queue = Queue("api", store=time.store, limits=[Rate(10, per="1s")])
    crew = [Worker("api", nothing, store=time.store, concurrency=10) for _ in range(3)]
    await add(queue, 50)

    async with working(*crew):
        await time.advance("4s")

    assert Counter(await started(queue)) == {0: 10, 1: 10, 2: 10, 3: 10, 4: 10}


async def test_a3_one_limiter_object_given_to_three_workers_is_shared_by_them(time):
    queue = Queue("api", store=time.store)
    limiter = Limiter("api-calls", Rate(10, per="1s"), store=time.store)
    crew = [Worker("api", nothing, store=time.store, concurrency=10, limiter=limiter) for _ in range(3)]
    await add(queue, 50)

    async with working(*crew):
        await time.advance("4s")

    assert Counter(await started(queue)) == {0: 10, 1: 10, 2: 10, 3: 10, 4: 10}


async def test_a3_a_workers_own_limiter_does_not_slow_another_worker(time):
    queue = Queue("api", store=time.store)
    slow_jobs, fast_jobs = [], []

    async def slow(job):
        slow_jobs.append(job.data)

    async def fast(job):
        fast_jobs.append(job.data)
        await time.sleep("100ms")

    await add(queue, 13)
    async with working(
        Worker("api", slow, store=time.store, limiter=Rate(1, per="1s")), Worker("api", fast, store=time.store)
    ):
        await time.advance("10s")

    # One each at 0; then the fast one takes all that comes before the slow one's second second.
    assert len(slow_jobs) == 2
    assert len(fast_jobs) == 11


async def test_a3_a_worker_that_does_not_know_the_limit_of_the_queue_cannot_bypass_it(time):
    await Queue("api", store=time.store, limits=[Rate(1, per="1s")]).counts()
    knows_nothing = Queue("api", store=time.store)
    await add(knows_nothing, 3)

    async with working(Worker("api", nothing, store=time.store, concurrency=10)):
        await time.advance("5s")

    assert await started(knows_nothing) == [0, 1, 2]


async def test_a3_own_limiter_and_the_queues_limit_bind_together(time):
    queue = Queue("api", store=time.store, limits=[Rate(5, per="2s")])
    await add(queue, 10)

    async with working(Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(3, per="1s"))):
        await time.advance("10s")

    assert await started(queue) == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]


async def test_a3_the_window_of_a_queue_survives_the_restart_of_its_worker(time):
    queue = Queue("api", store=time.store, limits=[Rate(2, per="1m")])
    await add(queue, 4)

    async with working(Worker("api", nothing, store=time.store)):
        await time.advance("10s")
    async with working(Worker("api", nothing, store=time.store)):
        await time.advance("2m")

    assert await started(queue) == [0, 0, 60, 60]


# A4 and A8, no fixed reset point, no burst


@settings(max_examples=40, deadline=None)
@given(
    most=st.integers(1, 5),
    workers=st.integers(1, 3),
    on_queue=st.booleans(),
    arrivals=st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 6), st.integers(0, 400)), min_size=1, max_size=12),
)
async def test_a4_no_window_position_ever_holds_more_than_max(most, workers, on_queue, arrivals):
    async with virtual_time() as time:
        queue = Queue("api", store=time.store, limits=[Rate(most, per="1s")] if on_queue else [])
        limiter = None if on_queue else Rate(most, per="1s")

        async def handler(job):
            await time.sleep(job.data / 1000)

        crew = [
            Worker("api", handler, store=time.store, concurrency=8, limiter=limiter)
            for _ in range(workers if on_queue else 1)
        ]
        async with working(*crew):
            for pause, number, takes_ms in arrivals:
                await time.advance(pause / 1000)
                await queue.add_many([("call", takes_ms)] * number)
            await time.advance("2m")

        starts = await queue.starts()
        assert len(starts) == sum(number for _, number, _ in arrivals)
        assert fullest_window(starts, 1) <= most
        # Full use: whoever was free and did not start had max starts in the second before.
        if max(takes for _, _, takes in arrivals) == 0:
            assert seconds(starts) == _ideal(arrivals, most)


def _ideal(arrivals, most):
    """When each job starts under a sliding window that wastes nothing."""
    starts: list[int] = []
    now = 0
    for pause, number, _ in arrivals:
        now += pause
        for _ in range(number):
            opens = starts[-most] + 1000 if len(starts) >= most else 0
            starts.append(max(now, opens, starts[-1] if starts else 0))
    return [at / 1000 for at in starts]


async def test_a4_the_window_slides_with_each_start_and_has_no_reset_point(time):
    queue = Queue("api", store=time.store)

    async with working(Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(3, per="1s"))):
        for _ in range(3):
            await queue.add("call")
            await time.advance("300ms")
        await add(queue, 5)
        await time.advance("5s")

    assert await started(queue) == [0, 0.3, 0.6, 1, 1.3, 1.6, 2, 2.3]


@pytest.mark.parametrize("seed", range(3))
async def test_a8_thirty_slots_in_three_workers_never_burst_over_max_and_always_reach_it(time, seed):
    queue = Queue("api", store=time.store, limits=[Rate(7, per="1s")])
    lengths = random.Random(seed)

    async def handler(job):
        await time.sleep(lengths.randint(0, 900) / 1000)

    crew = [Worker("api", handler, store=time.store, concurrency=10) for _ in range(3)]
    await add(queue, 140)
    async with working(*crew):
        await time.advance("1m")

    starts = await queue.starts()
    assert fullest_window(starts, 1) == 7
    assert seconds(starts) == [place // 7 for place in range(140)]


# A5, waiting is free


async def test_a5_limited_jobs_stay_waiting_use_no_attempt_and_keep_their_place(time):
    queue = Queue("api", store=time.store)
    jobs = await add(queue, 4, attempts=2)
    order = []

    async def handler(job):
        order.append((job.data, job.attempts_made))

    async with working(Worker("api", handler, store=time.store, concurrency=10, limiter=Rate(1, per="1m"))):
        await time.advance("59s")

        waiting = [await job.refresh() for job in jobs[1:]]
        assert [(job.state, job.attempts_made, job.error) for job in waiting] == [("waiting", 0, None)] * 3
        assert [after(job.due_at) for job in waiting] == [0] * 3
        assert await queue.counts() | {"waiting": 3, "completed": 1} == await queue.counts()
        await time.advance("10m")

    assert order == [(0, 1), (1, 1), (2, 1), (3, 1)]


async def test_a5_a_worker_that_waits_for_its_limit_does_not_ask_the_store_at_all(time, monkeypatch):
    queue = Queue("api", store=time.store)
    await add(queue, 2)
    asked = []
    claim = time.store.claim

    async def counting(*args):
        asked.append(after(time.now()))
        return await claim(*args)

    monkeypatch.setattr(time.store, "claim", counting)
    async with working(Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(1, per="20s"))):
        await time.advance("25s")

    assert await started(queue) == [0, 20]
    assert set(asked) == {0, 20}


# A6, batches


async def test_a6_a_batch_of_ten_counts_ten(time):
    queue = Queue("api", store=time.store)
    sizes = []

    async def handler(jobs):
        sizes.append(len(jobs))

    async with working(Worker("api", handler, store=time.store, batch=10, limiter=Rate(10, per="1s"))):
        await add(queue, 30)
        await time.advance("5s")

    assert sizes == [10, 10, 10]
    assert await started(queue) == [0] * 10 + [1] * 10 + [2] * 10


@pytest.mark.parametrize("on_queue", [True, False])
async def test_a6_a_batch_is_never_larger_than_what_the_limit_admits(time, on_queue):
    queue = Queue("api", store=time.store, limits=[Rate(2, per="5s")] if on_queue else [])
    limiter = None if on_queue else Rate(2, per="5s")
    sizes = []

    async def handler(jobs):
        sizes.append(len(jobs))

    async with working(Worker("api", handler, store=time.store, batch=10, limiter=limiter)):
        await add(queue, 5)
        await time.advance("20s")

    assert sizes == [2, 2, 1]
    assert await started(queue) == [0, 0, 5, 5, 10]


# A7, wrong values


@pytest.mark.parametrize("most", [0, -1, 1.5, True, None])
def test_a7_a_max_that_is_no_positive_integer_is_refused_by_name_also_for_groups(most):
    with pytest.raises(ConfigError, match=f"max={most!r} is wrong: expected a whole number of at least 1"):
        Worker("api", nothing, store="memory://", limiter=Rate(most, per="1s"))
    with pytest.raises(ConfigError, match=f"max={most!r} is wrong: expected a whole number of at least 1"):
        Worker("api", nothing, store="memory://", group=GroupLimits(limiter=Rate(most, per="1s")))


@pytest.mark.parametrize("per", [0, -1, "0s", "5 parsecs", float("nan"), float("inf"), True, None])
def test_a7_a_duration_that_is_not_positive_is_refused_by_name_also_for_groups(per):
    with pytest.raises(ConfigError, match=r"per=.* is wrong: expected"):
        Worker("api", nothing, store="memory://", limiter=Rate(1, per=per))
    with pytest.raises(ConfigError, match=r"per=.* is wrong: expected"):
        Worker("api", nothing, store="memory://", group=GroupLimits(limiter=Rate(1, per=per)))


# A9, exact wake-up


async def test_a9_a_worker_wakes_at_the_exact_microsecond_at_which_the_window_opens(time):
    queue = Queue("api", store=time.store)
    worker = Worker("api", nothing, store=time.store, concurrency=10, limiter=Rate(2, per="1s"))

    async with working(worker):
        for pause in ("123456us", "7us", "300ms"):
            await time.advance(pause)
            await queue.add("call")
        await time.advance("699992us")
        assert len(await queue.starts()) == 2
        await time.advance("1us")

        assert len(await queue.starts()) == 3
        assert time.now() == (await queue.starts())[-1].at
    assert await started(queue) == [0.123456, 0.123463, 1.123456]


async def test_a9_three_workers_wake_at_the_instant_a_shared_limit_opens(time):
    queue = Queue("api", store=time.store, limits=[Rate(2, per="700ms")])
    crew = [Worker("api", takes(time, "2s"), store=time.store) for _ in range(3)]
    await add(queue, 6)

    async with working(*crew):
        await time.advance("10s")

    # Two at 0, the third worker at 0.7; then a slot is free every time a job of two seconds ends.
    assert await started(queue) == [0, 0, 0.7, 2, 2, 2.7]


async def test_a9_every_attempt_is_a_start_of_its_own(time):
    queue = Queue("api", store=time.store)
    job = await queue.add("call", attempts=4)

    async def fails(job):
        raise OSError("down")

    async with working(Worker("api", fails, store=time.store, concurrency=10, limiter=Rate(2, per="1s"))):
        await time.advance("5s")

    assert await started(queue) == [0, 0, 1, 1]
    assert (await job.refresh()).state == "failed"
