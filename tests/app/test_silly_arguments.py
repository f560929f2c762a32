"""Whatever is passed to a public call, it works or one of our errors says what is wrong; no error comes from inside."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import product
from typing import Any

import pytest

from paceline import (
    AllOf,
    App,
    Backoff,
    CompositeLimiter,
    Concurrency,
    ConfigError,
    Delay,
    EvenlySpaced,
    Exponential,
    Fail,
    Group,
    GroupLimits,
    Limit,
    Limiter,
    PacelineError,
    Queue,
    Rate,
    RateLimited,
    Retry,
    Unique,
    Worker,
    open_store,
)


class Mute:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class NoOffset(tzinfo):
    """A zone that does not know its offset: times in it are naive."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None


class BrokenZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta | None:
        raise RuntimeError("no table")


class Count(int):
    """A whole number of a type of its own, as enums and other libraries have them."""


class Share(float): ...


SILLY: dict[str, Any] = {
    "None": None,
    "number": 5,
    "negative": -1,
    "huge": 10**30,
    "fraction": 0.5,
    "nan": float("nan"),
    "true": True,
    "bytes": b"",
    "empty": "",
    "text": "5 parsecs",
    "nul": "\x00",
    "object": object(),
    "mute": Mute(),
    "list": [],
    "list of objects": [object()],
    "tuple": (None, None),
    "dictionary": {None: object()},
    "naive": datetime(2030, 1, 1),
    "no offset": datetime(2030, 1, 1, tzinfo=NoOffset()),
    "broken zone": datetime(2030, 1, 1, tzinfo=BrokenZone()),
    "int of its own": Count(3),
    "float of its own": Share(3),
    "function of two": lambda one, two: 1,
    "function that raises": lambda *any: 1 / 0,
    "type": int,
}

LATER = datetime(2040, 1, 1, tzinfo=UTC)


async def nothing(job: Any) -> None: ...


async def _job(store: Any) -> Any:
    return await Queue("q", store=store).add("t")


def _limited(store: Any) -> App:
    app = App(store)
    app.limit("x", Rate(5, per="1m"))
    return app


def _task(store: Any) -> Any:
    async def work(a: int = 0) -> None: ...

    return App(store).task(name="work")(work)


Case = tuple[Callable[[Any], Any], str | None, dict[str, Any]]
JOB_OPTIONS = {
    "group": "g",
    "delay": 1,
    "at": LATER,
    "priority": 1,
    "lifo": False,
    "attempts": 2,
    "retry_delay": "1s",
    "timeout": "1s",
    "cost": 2,
    "job_id": "id",
    "unique": Unique("k"),
    "keep": 5,
}
CASES: dict[str, Case] = {
    "Rate": (lambda store: Rate, None, {"max": 5, "per": "1m", "guard": 0}),
    "Concurrency": (lambda store: Concurrency, None, {"max": 5}),
    "Delay": (lambda store: Delay, None, {"gap": "1s"}),
    "EvenlySpaced": (lambda store: EvenlySpaced, None, {"max": 5, "per": "1m"}),
    "AllOf": (lambda store: lambda kind: AllOf(Rate(1, per=1), kind), None, {"kind": Concurrency(1)}),
    "and": (lambda store: lambda kind: Rate(1, per=1) & kind, None, {"kind": Concurrency(1)}),
    "Backoff": (lambda store: Backoff, None, {"initial": "1s", "multiplier": 2, "maximum": "1m"}),
    "Exponential": (lambda store: Exponential, None, {"base": "1s", "cap": "1h", "jitter": 0.5}),
    "Unique": (lambda store: Unique, None, {"key": "k", "ttl": "1s"}),
    "Group": (lambda store: Group, None, {"id": "g", "max_size": 5}),
    "GroupLimits": (lambda store: GroupLimits, None, {"concurrency": 5, "limiter": Rate(1, per=1)}),
    "RateLimited": (lambda store: RateLimited, None, {"retry_after": 1, "limit": "x"}),
    "from_response": (lambda store: RateLimited, "from_response", {"status": 429, "headers": {}, "limit": "x"}),
    "Retry after": (lambda store: Retry, None, {"after": 1, "reason": "why"}),
    "Retry at": (lambda store: Retry, None, {"at": LATER, "reason": "why"}),
    "Fail": (lambda store: Fail, None, {"reason": "why"}),
    "Queue": (lambda store: Queue, None, {"name": "q", "store": "memory://silly", "limits": []}),
    "Worker": (
        lambda store: Worker,
        None,
        {
            "queue": "q",
            "handler": nothing,
            "store": "memory://silly",
            "concurrency": 1,
            "limiter": Rate(1, per=1),
            "group": GroupLimits(concurrency=1),
            "batch": 2,
            "lease": "30s",
            "isolation": "thread",
            "max_returns": 5,
            "name": "w",
        },
    ),
    "worker.stop": (lambda store: Worker("q", nothing, store=store), "stop", {"grace": 1}),
    "Limiter": (
        lambda store: Limiter,
        None,
        {"name": "n", "kind": Rate(1, per=1), "store": "memory://silly", "backoff": Backoff()},
    ),
    "acquire": (
        lambda store: Limiter("n", Rate(5, per=1), store=store),
        "acquire",
        {"cost": 1, "group": None, "timeout": 1},
    ),
    "try_acquire": (lambda store: Limiter("n", Rate(5, per=1), store=store), "try_acquire", {"cost": 1, "group": None}),
    "set_next": (
        lambda store: Limiter("n", Rate(5, per=1), store=store),
        "set_next_available_time",
        {"when": LATER},
    ),
    "CompositeLimiter": (lambda store: CompositeLimiter, None, {"limiters": []}),
    "add_limiter": (lambda store: CompositeLimiter(), "add_limiter", {"limiter": CompositeLimiter()}),
    "composite.set_next": (lambda store: CompositeLimiter(), "set_next_available_time", {"when": LATER}),
    "queue.add": (lambda store: Queue("q", store=store), "add", {"task": "t", "data": 1, "within": None}),
    **{
        f"queue.add {name}": (lambda store: Queue("q", store=store), "add", {"task": "t", name: value})
        for name, value in JOB_OPTIONS.items()
    },
    "queue.add_many": (lambda store: Queue("q", store=store), "add_many", {"jobs": [("t", 1)], "within": None}),
    "an item": (
        lambda store: lambda item: Queue("q", store=store).add_many([item]),
        None,
        {"item": ("t", 1)},
    ),
    "options of an item": (
        lambda store: lambda options: Queue("q", store=store).add_many([("t", 1, options)]),
        None,
        {"options": {}},
    ),
    "queue.get": (lambda store: Queue("q", store=store), "get", {"job_id": "x"}),
    "queue.list": (
        lambda store: Queue("q", store=store),
        "list",
        {"state": "waiting", "task": "t", "group": "g", "limit": 5, "after": None},
    ),
    "queue.starts": (lambda store: Queue("q", store=store), "starts", {"since": LATER}),
    "queue.explain": (lambda store: Queue("q", store=store), "explain", {"job_id": "x"}),
    "queue.pause": (lambda store: Queue("q", store=store), "pause", {"task": "t", "group": None}),
    "queue.resume": (lambda store: Queue("q", store=store), "resume", {"task": None, "group": "g"}),
    "queue.clean": (lambda store: Queue("q", store=store), "clean", {"state": "failed", "older_than": "1d"}),
    "queue.obliterate": (lambda store: Queue("q", store=store), "obliterate", {"force": False}),
    "queue.retry_jobs": (lambda store: Queue("q", store=store), "retry_jobs", {"state": "failed"}),
    "job.result": (_job, "result", {"timeout": 0}),
    "job.progress": (_job, "report_progress", {"percent": 5, "message": "m"}),
    "job.log": (_job, "log", {"text": "m"}),
    "app": (lambda store: App, None, {"url": "memory://silly", "namespace": "n", "lifespan": None}),
    "app.get": (lambda store: App(store), "get", {"job_id": "x"}),
    "app.queue": (lambda store: App(store), "queue", {"name": "q", "limits": []}),
    "app.drop_limit": (_limited, "drop_limit", {"name": "x"}),
    "app.limiter": (lambda store: App(store), "limiter", {"name": "x", "kind": Rate(1, per=1), "backoff": None}),
    "app.limit_state": (_limited, "limit_state", {"name": "x", "group": None}),
    "app.hold": (_limited, "hold", {"name": "x", "for_": 1, "until": None, "group": None, "reason": "why"}),
    "app.release": (_limited, "release", {"name": "x", "group": None}),
    "app.override": (
        _limited,
        "override",
        {"name": "x", "kind": Rate(1, per=1), "group": None, "reason": "why", "expires": "1h"},
    ),
    "app.worker": (
        lambda store: App(store),
        "worker",
        {"queues": ["q"], "concurrency": 1, "workers": 1, "limiter": None},
    ),
    "task.using": (_task, "using", {"queue": "q", **JOB_OPTIONS, "at": None}),
    "task.enqueue_many": (_task, "enqueue_many", {"calls": [(1,)]}),
    "open_store": (lambda store: open_store, None, {"url": "memory://", "namespace": "n"}),
    "a limit": (lambda store: Limit, None, {"name": "x", "kind": Rate(1, per=1), "backoff": Backoff()}),
}


ENDLESS = ("job.result", "acquire")
"""They may wait as long as they are told to."""


@pytest.mark.parametrize("case", CASES)
async def test_a_silly_argument_works_or_is_refused_in_words(case):
    make, name, arguments = CASES[case]
    for parameter, silly in product(arguments, SILLY):
        store = open_store("memory://")
        owner = make(store)
        owner = await owner if inspect.isawaitable(owner) else owner
        call = owner if name is None else getattr(owner, name)
        try:
            answer = call(**{**arguments, parameter: SILLY[silly]})
            if hasattr(answer, "__aenter__") and name == "acquire":
                answer = answer.__aenter__()
            if inspect.isawaitable(answer):
                async with asyncio.timeout(0.1 if case in ENDLESS else 5):
                    await answer
        except PacelineError as error:
            assert str(error)
        except TimeoutError:
            assert case in ENDLESS, f"{case}({parameter}={silly}) never ends"
        except Exception as error:
            raise AssertionError(f"{case}({parameter}={silly}) raised {type(error).__name__}") from error


async def test_a_number_of_a_type_of_its_own_is_stored_as_the_plain_number(url):
    app = App(open_store(url))
    queue = app.queue("q")
    number = Count(3)
    app.limit("x", Rate(Count(9), per=Count(60)) & Concurrency(number) & EvenlySpaced(number, per="1us"))
    options = {"priority": number, "attempts": number, "cost": {"x": number}, "group": Group("g", number)}
    job = await queue.add("t", 1, **options)
    plain = await queue.add("t", 1, cost=number, delay=Count(0), timeout=number, keep=number)

    found = [(await queue.get(each.id)).record for each in (job, plain)]

    values = [found[0].priority, found[0].attempts, found[0].cost["x"], found[1].cost, found[1].timeout // 10**6]
    assert values == [3] * 5 and {type(value) for value in values} == {int}
    limiter = app.limiter("y", Rate(Count(5), per=1))
    assert await limiter.try_acquire(Count(3)) and not await limiter.try_acquire(Count(3))
    assert (await queue.list(limit=Count(1))) != []
    worker = Worker("q", report, store=app.store, concurrency=number, max_returns=number)
    await worker.run(until_empty=True)
    assert (await job.refresh()).state == "completed"
    await app.close()


async def report(job: Any) -> None:
    await job.progress(Count(2))
    await job.progress(Share(3))


@pytest.mark.parametrize("silly", ["no offset", "broken zone", "naive"])
async def test_a_time_without_an_offset_is_refused_everywhere(silly):
    app = _limited(open_store("memory://"))
    when = SILLY[silly]
    limiter = app.limiter("x")
    calls = [
        lambda: app.queue().add("t", at=when),
        lambda: app.hold("x", until=when),
        lambda: app.override("x", Rate(1, per=1), expires=when),
        lambda: app.queue().starts(when),
        lambda: limiter.set_next_available_time(when),
        lambda: Retry(at=when),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="time zone"):
            await call()


@pytest.mark.parametrize("silly", ["function of two", "function that raises"])
def test_a_retry_delay_that_cannot_be_asked_is_refused_where_it_is_written(silly):
    with pytest.raises(ConfigError, match=r"retry_delay=.*takes the number of the failed attempt.*raised") as caught:
        App().task(attempts=3, retry_delay=SILLY[silly])(nothing)
    assert caught.value.option == "retry_delay"


def test_a_function_without_a_known_signature_is_refused_as_a_task():
    class Odd:
        __signature__ = "none"

        def __call__(self) -> None: ...

    for function in (min, Odd(), int):
        with pytest.raises(ConfigError, match="wrap it in a function of your own"):
            App().task(name="t")(function)
