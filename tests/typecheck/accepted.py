"""What users write, and what a strict type checker must know about it. Never run: mypy reads it."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

from paceline import (
    App,
    Backoff,
    Blocked,
    CompositeLimiter,
    Concurrency,
    Delay,
    EvenlySpaced,
    Explanation,
    Exponential,
    Group,
    GroupLimits,
    Job,
    JobState,
    Limit,
    Limiter,
    LimiterProtocol,
    LimitState,
    Permit,
    Queue,
    Rate,
    RateLimited,
    Retry,
    Start,
    Store,
    Task,
    Unique,
    Unlimited,
    Worker,
    current_job,
    open_store,
)
from paceline.testing import VirtualTime, virtual_time

app = App("memory://", namespace="typed")
store: Store = open_store("memory://")


@dataclass
class Report:
    pages: int


@app.task
async def bare(n: int) -> int:
    return n


@app.task()
def plain(text: str, *, times: int = 1) -> str:
    return text * times


@app.task(
    name="report",
    queue="reports",
    attempts=3,
    retry_delay=Exponential("1s", cap="1h"),
    timeout=timedelta(minutes=1),
    priority=-1,
    cost={"tokens": 100},
    unique=Unique(key="daily", ttl="1d"),
    isolation="process",
    keep=None,
)
async def report(day: datetime) -> Report:
    return Report(1)


async def tasks() -> None:
    kept: Task[[int], int, Coroutine[Any, Any, int]] = bare
    assert_type(await kept(1), int)
    assert_type(await bare(n=1), int)
    assert_type(plain("a", times=2), str)

    job = await bare.enqueue(1)
    assert_type(job, Job[int])
    assert_type(await job.result(timeout="30s"), int)
    assert_type(await plain.enqueue("a", times=2), Job[str])
    assert_type(plain.enqueue_sync("a"), Job[str])
    assert_type(await bare.enqueue_many([(1,), (2,)]), list[Job[int]])

    other = report.using(group=Group("tenant-7", max_size=10), delay="5m", priority=2, lifo=True, keep=0)
    assert_type(await (await other.enqueue(datetime.now())).result(), Report)
    dated = report.using(at=datetime.now(), attempts=2, timeout=None, cost=2)
    assert_type(await dated.enqueue(day=datetime.now()), Job[Report])
    assert_type(report.name, str)


async def jobs(job: Job[int]) -> None:
    assert_type(job.state, JobState)
    assert_type(job.id, str)
    assert_type(job.group, str | None)
    assert_type(job.attempts_made, int)
    assert_type(job.created_at, datetime)
    assert_type(job.started_at, datetime | None)
    assert_type(job.error, str | None)
    await job.progress(50, "half way")
    await job.log("a line")
    assert_type(await job.refresh(), Job[int])
    for move in (job.cancel, job.promote, job.retry, job.remove):
        await move()
    explanation: Explanation = await job.explain()
    blocked: list[Blocked] = explanation.blocked_by
    assert_type([each.until for each in blocked], list[datetime | None])
    assert_type(current_job().id, str)


async def limits() -> None:
    kind = Rate(120, per="1m", guard="5ms") & Concurrency(5) & Delay() & EvenlySpaced(10, per=60) & Unlimited()
    assert_type(app.limit("email", kind, tasks=["plain"], backoff=Backoff("2s")), Limit)
    app.limit("tenant", Rate("50/min"), by="group", overrides={"big": Rate(500, per=timedelta(minutes=1))})
    assert_type(await app.limit_state("tenant", group="big"), LimitState)
    await app.override("email", Rate(1, per=1), group=None, reason="unwell", expires="1h")
    await app.override("email", None)
    await app.hold("email", until=datetime.now(), reason="asked")
    await app.hold("email", for_=30)
    await app.release("email")
    await app.drop_limit("email")
    assert_type(await app.get("id"), Job[Any] | None)


async def queues() -> None:
    queue = Queue("mail", store=store, limits=[Rate(1, per=1), Limit("x", Concurrency(2))])
    assert_type(await queue.add("send", {"to": "a"}, group="g", unique=Unique()), Job[Any])
    assert_type(await queue.add_many([("send", 1), ("send", 2, {"delay": "5m"})]), list[Job[Any]])
    assert_type(await queue.counts(), dict[str, int])
    assert_type(await queue.get("id"), Job[Any] | None)
    first: list[Job[Any]] = await queue.list("failed", task="send", group="g", limit=10, after="id")
    starts: list[Start] = list(await queue.starts(since=datetime.now()))
    assert_type(await queue.clean("failed", "1d"), int)
    await queue.pause(task="send")
    await queue.resume(group="g")
    assert_type(await queue.explain(first[0].id), Explanation)
    print(starts)
    await queue.close()


class Own:
    """A limiter of one's own: the six coroutines are enough."""

    async def can_proceed(self) -> bool:
        return True

    async def record_job_start(self) -> None: ...

    async def record_job_completion(self) -> None: ...

    async def get_next_available_time(self) -> datetime:
        return datetime.now()

    async def set_next_available_time(self, when: datetime) -> None: ...

    async def clear(self) -> None: ...


async def limiters() -> None:
    limiter: LimiterProtocol = Limiter("openai", Rate(1, per=1), store="memory://", backoff=Backoff())
    composite = CompositeLimiter([limiter, Own()])
    composite.add_limiter(app.limiter("other", Concurrency(2)))
    as_protocol: LimiterProtocol = composite
    print(as_protocol)
    named = app.limiter("openai")
    async with named.acquire(cost=2, group="g", timeout="5s") as permit:
        assert_type(permit, Permit)
    maybe = await named.try_acquire(2, group="g")
    assert_type(maybe, Permit | None)
    if maybe is not None:
        await maybe.release()
    assert_type(await named.get_next_available_time(), datetime)


async def handler(job: Job[Any]) -> None:
    if job.data == 429:
        raise RateLimited.from_response(429, {"retry-after": "30"}, limit="email")
    if job.data == 503:
        raise RateLimited(30)
    raise Retry(after="1m")


async def workers() -> None:
    worker = Worker(
        ["mail", "letters"],
        handler,
        store=store,
        concurrency=5,
        limiter=Rate(20, per="1s"),
        group=GroupLimits(concurrency=2, limiter=Rate(30, per="1m")),
        batch=10,
        lease="30s",
    )
    async with worker:
        worker.pause()
        worker.resume()
    await worker.run(until_empty=True)
    await worker.stop(grace=5)
    assert_type(app.worker(queues=["mail"], concurrency=10, workers=2, limiter=Own()), Worker)
    async with app as entered:
        assert_type(entered, App)


async def testing() -> None:
    async with virtual_time("memory://") as time:
        assert_type(time, VirtualTime)
        await time.advance("1m")
        assert_type(time.now(), datetime)
        assert_type(time.starts(task="send"), list[Start])
