"""What a strict type checker must refuse: each marked line is one error of that kind, and no other line is."""

from __future__ import annotations

from typing import Any

from paceline import App, CompositeLimiter, Group, Job, Limit, Queue, Rate, Worker

app = App()


@app.task(attempts=3)
async def send(to: str, *, copies: int = 1) -> int:
    return copies


@app.task()
def plain(n: int) -> str:
    return str(n)


async def arguments() -> None:
    await send.enqueue(5)  # error: arg-type
    await send.enqueue()  # error: call-arg
    await send.enqueue("a", subject="x")  # error: call-arg
    await send.enqueue("a", 2)  # error: call-arg
    send.enqueue_sync(copies=1)  # error: call-arg
    await send.using(group="g").enqueue(b"a")  # error: arg-type
    plain("1")  # error: arg-type
    await send(5)  # error: arg-type


async def results() -> None:
    job = await send.enqueue("a")
    text: str = await job.result()  # error: assignment
    number: int = await (await plain.enqueue(1)).result()  # error: assignment
    other: Job[str] = job  # error: assignment
    called: int = plain(1)  # error: assignment
    print(text, number, other, called)


async def options() -> None:
    send.using(colour="red")  # error: call-arg
    send.using(attempts="3")  # error: arg-type
    send.using(group=7)  # error: arg-type
    await Queue("q", store=app.store).add("t", colour="red")  # error: call-arg
    await Queue("q", store=app.store).add("t", priority="high")  # error: arg-type
    Queue("q")  # error: call-arg
    Group(7)  # error: arg-type
    Rate(1.5, per="1s")  # error: arg-type
    Limit("x", 5)  # error: arg-type
    app.limit("x", Rate(1, per=1), by="tenant")  # error: arg-type
    app.task(retries=3)  # error: call-overload


class Lacking:
    """Five of the six coroutines."""

    async def can_proceed(self) -> bool:
        return True

    async def record_job_start(self) -> None: ...

    async def record_job_completion(self) -> None: ...

    async def get_next_available_time(self) -> Any: ...

    async def clear(self) -> None: ...


def limiters() -> None:
    CompositeLimiter([Lacking()])  # error: list-item
    CompositeLimiter([Rate(1, per=1)])  # error: list-item


async def unawaited(job: Job[int]) -> None:
    number: int = job.result()  # error: assignment
    print(number)
    Worker("q", 5, store=app.store)  # error: arg-type
