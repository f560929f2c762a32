"""Virtual time on a file: an hour of limits takes a moment, and the file can be used again."""

from __future__ import annotations

import time as real
from datetime import timedelta

import pytest

from paceline import App, Concurrency, Job, Queue, Rate, Retry, Worker
from paceline.testing import virtual_time


def fullest_window(starts, per: timedelta) -> int:
    times = [start.at for start in starts]
    return max((sum(at <= other < at + per for other in times) for at in times), default=0)


@pytest.fixture
def url(path) -> str:
    return f"sqlite:///{path}?durability=normal"


async def nothing(job) -> None:
    """The plainest handler."""


async def test_an_hour_of_limits_takes_less_than_a_second(url):
    async with virtual_time(url) as time:
        queue = Queue("line", store=time.store, limits=[Rate(2, per="1m")])
        await queue.add_many([("work", number) for number in range(200)])
        began = real.monotonic()

        async with Worker("line", nothing, store=time.store, concurrency=5):
            await time.advance("1h")
        took = real.monotonic() - began

        starts = time.starts()
        assert len(starts) == 2 * 60 + 2
        assert fullest_window(starts, timedelta(minutes=1)) == 2
        assert (await queue.counts())["completed"] == len(starts)
    assert took < 3, "well under a second on a quiet machine"


async def test_handlers_leases_retries_and_delays_follow_the_same_clock(url):
    async with virtual_time(url) as time:
        app = App(time.store)
        app.limit("api", Concurrency(1))
        queue = app.queue("line")
        tries: list[timedelta] = []
        began = time.now()

        async def handler(job: Job) -> str:
            tries.append(time.now() - began)
            await time.sleep("100s")  # longer than its lease
            if job.attempts_made == 1:
                raise Retry(after="10m")
            return "done"

        job = await queue.add("work", attempts=2, delay="5m")
        async with Worker("line", handler, store=time.store):
            await time.advance("1h")

        await job.refresh()
        assert (job.state, job.result_value, job.crashes) == ("completed", "done", 0)
        assert tries == [timedelta(minutes=5), timedelta(minutes=15, seconds=100)]


async def test_a_second_virtual_time_on_the_same_file_goes_on_with_the_same_jobs_and_windows(url):
    counts = []
    for duration in ("10m", "20m"):
        async with virtual_time(url) as time:
            queue = Queue("line", store=time.store, limits=[Rate(2, per="1m")])
            await queue.add_many([("work", number) for number in range(100)])
            async with Worker("line", nothing, store=time.store, concurrency=5):
                await time.advance(duration)
            counts.append(len(time.starts()))
            assert fullest_window(time.starts(), timedelta(minutes=1)) == 2

    # The second one begins before the first one ended: the store waits for its clock, and goes on from there.
    assert counts == [2 * 10 + 2, 2 * 20 + 2]


async def test_a_second_virtual_time_that_begins_later_counts_the_starts_of_the_first(url):
    async with virtual_time(url) as time:
        queue = Queue("line", store=time.store, limits=[Rate(2, per="1m")])
        await queue.add_many([("work", number) for number in range(10)])
        async with Worker("line", nothing, store=time.store, concurrency=5):
            await time.advance("30s")
        later = time.now()

    async with virtual_time(url, start=later) as time, Worker("line", nothing, store=time.store, concurrency=5):
        await time.advance("29s")
        assert len(time.starts()) == 2
        await time.advance("1s")
        assert len(time.starts()) == 4


async def test_two_virtual_times_on_two_files_are_two_worlds(tmp_path):
    async with virtual_time(f"sqlite:///{tmp_path}/one.db") as one, virtual_time(f"sqlite:///{tmp_path}/two.db") as two:
        await Queue("line", store=one.store).add("work", delay="1h")
        await one.advance("1h")

        assert one.now() - two.now() == timedelta(hours=1)
        assert (await Queue("line", store=one.store).counts())["waiting"] == 1
        assert (await Queue("line", store=two.store).counts())["waiting"] == 0


async def test_a_new_process_on_the_file_sees_what_virtual_time_left(url, opener, path):
    async with virtual_time(url) as time:
        queue = Queue("line", store=time.store)
        job = await queue.add("work", 7)
        async with Worker("line", nothing, store=time.store):
            await time.advance(0)

    assert (await Queue("line", store=opener()).get(job.id)).state == "completed"
