"""Wrong options and wrong limiters: typed errors that name option and value; nothing is stored, nothing is lost."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta

import pytest

from paceline import (
    CompositeLimiter,
    Concurrency,
    ConfigError,
    GroupLimits,
    Limiter,
    Queue,
    Rate,
    Worker,
    open_store,
)

from .helpers import add, after, called, nothing, seconds, started, states, takes, working

METHODS = (
    "can_proceed",
    "record_job_start",
    "record_job_completion",
    "get_next_available_time",
    "set_next_available_time",
    "clear",
)


class Own:
    """A limiter of one's own that always agrees, and remembers what it was asked."""

    def __init__(self, time=None):
        self._time = time
        self.calls: list[str] = []

    async def can_proceed(self) -> bool:
        self.calls.append("can_proceed")
        return True

    async def record_job_start(self) -> None:
        self.calls.append("record_job_start")

    async def record_job_completion(self) -> None:
        self.calls.append("record_job_completion")

    async def get_next_available_time(self) -> datetime:
        self.calls.append("get_next_available_time")
        return self._time.now()

    async def set_next_available_time(self, when: datetime) -> None:
        self.calls.append("set_next_available_time")

    async def clear(self) -> None:
        self.calls.append("clear")


async def refused(option: str, value: object, **options) -> str:
    """Make a worker with one wrong option: the text of the error, after checking that it says what it must."""
    store = open_store("memory://")
    given = {"queue": "line", "handler": nothing, "store": store, **options}
    with pytest.raises(ConfigError) as error:
        Worker(given.pop("queue"), given.pop("handler"), **given)
    text = str(error.value)
    assert option in text
    assert repr(value)[:40] in text
    assert "expected" in text
    assert (error.value.option, error.value.value) == (option, value) or value != value
    assert await store.limits() == []
    return text


# options of a worker

NO_COUNTS = [0, -1, 1.5, 1.0, True, False, "2", float("nan"), float("inf"), [1]]


@pytest.mark.parametrize("value", [*NO_COUNTS, None], ids=called)
async def test_a_concurrency_that_is_no_count_is_refused(value):
    await refused("concurrency", value, concurrency=value)


@pytest.mark.parametrize("value", NO_COUNTS, ids=called)
async def test_a_batch_that_is_no_count_is_refused(value):
    await refused("batch", value, batch=value)


@pytest.mark.parametrize("value", [0, -1, "0s", "-5s", "5 parsecs", "", float("nan"), float("inf"), True, None, [1]])
async def test_a_lease_that_is_no_positive_duration_is_refused(value):
    await refused("lease", value, lease=value)


@pytest.mark.parametrize("value", [*NO_COUNTS, None], ids=called)
async def test_a_max_returns_that_is_no_count_is_refused(value):
    await refused("max_returns", value, max_returns=value)


@pytest.mark.parametrize("value", ["", "a\nb", "a\x00b", "x" * 256, 42, None, 1.5], ids=called)
async def test_a_queue_that_is_no_name_is_refused(value):
    await refused("queue", value, queue=value)


@pytest.mark.parametrize("wrong", ["", "a\tb", "x" * 256, 42, None], ids=called)
async def test_one_wrong_name_among_several_queues_is_refused(wrong):
    await refused("queue", wrong, queue=["right", wrong])


async def test_no_queue_at_all_is_refused():
    await refused("queue", [], queue=[])


@pytest.mark.parametrize("value", [None, 42, "send_email", [nothing]], ids=called)
async def test_a_handler_that_is_no_function_is_refused(value):
    await refused("handler", value, handler=value)


@pytest.mark.parametrize("value", ["fork", "", None, True, 3], ids=called)
async def test_an_isolation_that_does_not_exist_is_refused(value):
    await refused("isolation", value, isolation=value)


@pytest.mark.parametrize("value", [42, None, object(), ["memory://"]], ids=called)
def test_a_store_that_is_no_store_is_refused(value):
    with pytest.raises(ConfigError, match=r"store=.* is wrong: expected"):
        Worker("line", nothing, store=value)


def test_a_url_that_no_store_has_is_refused():
    with pytest.raises(ConfigError, match="mongodb://x"):
        Worker("line", nothing, store="mongodb://x")


@pytest.mark.parametrize("value", [3, Rate(1, per="1s"), {"concurrency": 2}, "2", GroupLimits], ids=called)
async def test_a_group_that_is_no_group_limits_is_refused(value):
    await refused("group", value, group=value)


@pytest.mark.parametrize("value", NO_COUNTS, ids=called)
def test_group_limits_with_a_concurrency_that_is_no_count_are_refused(value):
    with pytest.raises(ConfigError) as error:
        GroupLimits(concurrency=value)
    assert "concurrency" in str(error.value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("value", [3, "10/s", Rate, Concurrency, object(), [Rate(1, per="1s")], True], ids=called)
def test_group_limits_with_a_limiter_that_is_no_kind_are_refused(value):
    with pytest.raises(ConfigError) as error:
        GroupLimits(limiter=value)
    assert "limiter" in str(error.value)
    assert repr(value) in str(error.value)


def test_group_limits_without_any_limit_are_refused():
    with pytest.raises(ConfigError, match="expected a concurrency, a limiter, or both"):
        GroupLimits()


async def test_a_wrong_grace_is_refused_and_the_worker_goes_on(time):
    queue = Queue("line", store=time.store)
    worker = Worker("line", nothing, store=time.store)

    async with working(worker):
        for grace in (-1, "5 parsecs", None, True):
            with pytest.raises(ConfigError, match="grace="):
                await worker.stop(grace=grace)
        job = await queue.add("work")
        await time.advance("1s")

        assert await states([job]) == ["completed"]


# what a handler does wrong


async def test_a_handler_that_takes_no_job_fails_its_jobs_and_not_the_worker(time):
    queue = Queue("line", store=time.store)

    async def takes_nothing():
        return None

    jobs = await add(queue, 2)
    async with working(Worker("line", takes_nothing, store=time.store)):
        await time.advance("1s")

    assert await states(jobs) == ["failed", "failed"]
    assert "TypeError" in jobs[0].error


@pytest.mark.parametrize("percent", [-1, 101, float("nan"), "50", None, True], ids=called)
async def test_a_progress_that_is_no_percentage_is_refused_and_nothing_is_written(time, percent):
    queue = Queue("line", store=time.store)

    async def handler(job):
        await job.progress(20)
        await job.progress(percent)

    job = await queue.add("work")
    async with working(Worker("line", handler, store=time.store)):
        await time.advance("1s")

    assert await states([job]) == ["failed"]
    assert f"percent={percent!r} is wrong: expected a number from 0 to 100" in job.error
    assert float(job.progress) == 20


# limiters of one's own


@pytest.mark.parametrize("missing", METHODS)
async def test_a_limiter_that_lacks_one_of_the_six_methods_is_refused_and_the_text_says_which(missing):
    methods = {name: getattr(Own, name) for name in METHODS if name != missing}
    limiter = type("Incomplete", (), methods)()

    assert missing in (await refused("limiter", limiter, limiter=limiter)).rpartition("lacks")[2]
    with pytest.raises(ConfigError, match=missing):
        CompositeLimiter([limiter])
    with pytest.raises(ConfigError, match=missing):
        CompositeLimiter().add_limiter(limiter)


@pytest.mark.parametrize("value", ["10/s", 5, True, Rate, Own, object(), {"max": 10, "duration": 1000}], ids=called)
async def test_a_limiter_that_is_none_is_refused(value):
    await refused("limiter", value, limiter=value)


async def test_a_limiter_of_ones_own_is_asked_before_every_start_and_told_of_start_and_end(time):
    queue = Queue("line", store=time.store)
    limiter = Own(time)
    await add(queue, 2)

    async with working(Worker("line", takes(time, "1s"), store=time.store, limiter=limiter)):
        await time.advance("1.5s")
        assert limiter.calls[:2] == ["can_proceed", "record_job_start"]
        assert limiter.calls.count("record_job_start") == 2
        assert limiter.calls.count("record_job_completion") == 1
        await time.advance("1.5s")

    assert limiter.calls.count("record_job_completion") == 2
    assert await started(queue) == [0, 1]


@pytest.mark.parametrize("ending", ["error", "timeout", "cancel", "stop"])
async def test_a_limiter_of_ones_own_is_told_of_every_end_whatever_it_was(time, ending):
    queue = Queue("line", store=time.store)
    limiter = Own(time)
    job = await queue.add("work", timeout="1s" if ending == "timeout" else None)

    async def handler(job):
        if ending == "error":
            raise OSError("down")
        await time.sleep("1h")

    async with working(Worker("line", handler, store=time.store, limiter=limiter)):
        await time.advance("2s")
        if ending == "cancel":
            await job.cancel()
            await time.advance("1s")

    assert limiter.calls.count("record_job_start") == limiter.calls.count("record_job_completion") == 1


@pytest.mark.parametrize("method", ["can_proceed", "get_next_available_time"])
async def test_while_a_limiter_raises_the_claim_waits_the_error_is_logged_and_nothing_is_lost(time, caplog, method):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)

    class Broken(Own):
        broken = True

        async def can_proceed(self):
            if self.broken and method == "can_proceed":
                raise RuntimeError("no connection to the limiter")
            return not self.broken

        async def get_next_available_time(self):
            if self.broken and method == "get_next_available_time":
                raise RuntimeError("no connection to the limiter")
            return self._time.now()

    limiter = Broken(time)
    async with working(Worker("line", nothing, store=time.store, concurrency=3, limiter=limiter)):
        await time.advance("1m")
        assert await states(jobs) == ["waiting"] * 3
        assert [job.attempts_made for job in jobs] == [0, 0, 0]
        assert "no connection to the limiter" in caplog.text
        limiter.broken = False
        await time.advance("1m")

    assert await states(jobs) == ["completed"] * 3
    # It is asked again soon after it works again.
    assert 60 <= (await started(queue))[0] <= 66


@pytest.mark.parametrize("method", ["record_job_start", "record_job_completion"])
async def test_a_limiter_that_raises_when_it_is_told_something_loses_no_job(time, caplog, method):
    queue = Queue("line", store=time.store)
    jobs = await add(queue, 3)

    async def raises():
        raise RuntimeError("no connection to the limiter")

    limiter = Own(time)
    setattr(limiter, method, raises)
    async with working(Worker("line", nothing, store=time.store, limiter=limiter)):
        await time.advance("1m")

    assert await states(jobs) == ["completed"] * 3
    assert [job.attempts_made for job in jobs] == [1, 1, 1]
    assert await started(queue) == [0, 0, 0]
    assert "no connection to the limiter" in caplog.text


@pytest.mark.parametrize(
    "answer", [None, "soon", 5, datetime(2030, 1, 1), datetime(1999, 1, 1, tzinfo=UTC)], ids=called
)
async def test_a_limiter_that_refuses_and_names_no_usable_time_is_asked_again_but_not_in_a_loop(time, answer):
    queue = Queue("line", store=time.store)
    await queue.add("work")
    asked = []

    class Vague(Own):
        async def can_proceed(self):
            asked.append(after(self._time.now()))
            return after(self._time.now()) >= 30

        async def get_next_available_time(self):
            return answer

    async with working(Worker("line", nothing, store=time.store, limiter=Vague(time))):
        await time.advance("1m")

    (start,) = await started(queue)
    assert 30 <= start <= 36
    assert len([at for at in asked if at < start]) < 30


async def test_a_limiter_that_refuses_for_two_seconds_costs_fewer_than_ten_calls_and_wakes_exactly(time):
    queue = Queue("line", store=time.store)
    await queue.add("work")

    class Refuses(Own):
        async def can_proceed(self):
            await super().can_proceed()
            return after(self._time.now()) >= 2

        async def get_next_available_time(self):
            await super().get_next_available_time()
            return datetime(2030, 1, 1, 0, 0, 2, tzinfo=UTC)

    limiter = Refuses(time)
    async with working(Worker("line", nothing, store=time.store, limiter=limiter)):
        await time.advance("2s")
        assert len(limiter.calls) < 10

    assert await started(queue) == [2]


async def test_one_limiter_object_of_ones_own_in_three_workers_is_never_asked_by_two_at_once(time):
    queue = Queue("line", store=time.store)
    await add(queue, 9)

    class Two(Own):
        """Two starts per second, by a check and a count that do not belong together."""

        def __init__(self, time):
            super().__init__(time)
            self.starts: list[datetime] = []

        async def can_proceed(self):
            free = len([at for at in self.starts if at > self._time.now() - timedelta(seconds=1)]) < 2
            # Whoever else asks now sees the same.
            await self._time.sleep("1ms")
            return free

        async def record_job_start(self):
            self.starts.append(self._time.now())

        async def get_next_available_time(self):
            return self.starts[-2] + timedelta(seconds=1)

    limiter = Two(time)
    crew = [Worker("line", nothing, store=time.store, concurrency=3, limiter=limiter) for _ in range(3)]
    async with working(*crew):
        await time.advance("10s")

    starts = await queue.starts()
    assert len(starts) == 9
    times = seconds(starts)
    assert all(third - first >= 1 for first, third in zip(times, times[2:], strict=False))


async def test_an_own_limiter_may_be_part_of_a_composite_and_both_bind(time):
    queue = Queue("line", store=time.store)
    await add(queue, 4)

    class FromThree(Own):
        async def can_proceed(self):
            return after(self._time.now()) >= 3

        async def get_next_available_time(self):
            return datetime(2030, 1, 1, 0, 0, 3, tzinfo=UTC)

    composite = CompositeLimiter([FromThree(time)])
    composite.add_limiter(Limiter("service", Rate(2, per="10s"), store=time.store))
    async with working(Worker("line", nothing, store=time.store, concurrency=4, limiter=composite)):
        await time.advance("30s")

    assert await started(queue) == [3, 3, 13, 13]


def test_a_partial_of_an_async_handler_is_accepted():
    async def handler(extra, job):
        return extra

    Worker("line", functools.partial(handler, 1), store="memory://")
