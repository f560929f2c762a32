"""Bad input: a clear typed error that names the option, the value and what is expected, and nothing is stored."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import pytest

from paceline import (
    AllOf,
    App,
    Concurrency,
    ConfigError,
    Delay,
    EvenlySpaced,
    Exponential,
    Group,
    GroupLimits,
    Job,
    Limit,
    Limiter,
    NeverFits,
    NotSerializable,
    PayloadTooLarge,
    Queue,
    QueueClosed,
    Rate,
    Unlimited,
    Worker,
)
from paceline.testing import VirtualTime

RATE = Rate(1, per="1s")
NAN, INF = float("nan"), float("inf")
NO_COUNTS = [0, -1, 1.5, 1.0, True, False, "5", None, NAN, INF, [1]]
NO_DURATIONS = [0, 0.0, -1, -0.5, True, NAN, INF, -INF, "5 parsecs", "", "soon", "-5s", "0s", timedelta(0), [1], {}]
NO_NAMES = ["", "a\nb", "a\tb", "a\0b", "\x7f", "x" * 256, 5, None, True, b"bytes", ["a"]]


async def noop(job: Job[Any]) -> None: ...


def names(error: pytest.ExceptionInfo[ConfigError], option: str, value: Any) -> bool:
    text = str(error.value)
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77]
    return f"{option}={shown}" in text and "expected" in text


@pytest.fixture
def queue(paceline_time: VirtualTime) -> Queue:
    return Queue("mail", store=paceline_time.store, limits=[Rate(10, per="1m")])


async def size(queue: Queue) -> int:
    return sum((await queue.counts()).values())


# kinds


@pytest.mark.parametrize("value", [value for value in NO_COUNTS if not isinstance(value, str)], ids=repr)
@pytest.mark.parametrize(
    "make",
    [lambda n: Rate(n, per="1s"), lambda n: EvenlySpaced(n, per="1s"), Concurrency],
    ids=["Rate", "EvenlySpaced", "Concurrency"],
)
def test_a_maximum_that_is_no_count_is_refused_a7(make: Any, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make(value)
    assert names(caught, "max", value)
    assert caught.value.option == "max"
    assert caught.value.value is value or caught.value.value == value or math.isnan(value)


@pytest.mark.parametrize("value", NO_DURATIONS, ids=repr)
@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda per: Rate(5, per=per), "per"),
        (lambda per: EvenlySpaced(5, per=per), "per"),
        (Delay, "gap"),
        (lambda base: Exponential(base), "base"),
        (lambda cap: Exponential("1s", cap=cap), "cap"),
    ],
    ids=["Rate", "EvenlySpaced", "Delay", "Exponential", "Exponential cap"],
)
def test_what_is_no_positive_duration_is_refused_a7(make: Any, option: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make(value)
    assert names(caught, option, value)


@pytest.mark.parametrize("value", [-1, NAN, INF, "5 parsecs", True], ids=repr)
def test_a_wrong_guard_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Rate(5, per="1s", guard=value)
    assert names(caught, "guard", value)


@pytest.mark.parametrize("text", ["", "100", "0/min", "-5/s", "1.5/s", "100/parsec", "100/0s", "x/min", "5/s/s"])
def test_a_rate_in_words_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Rate(text)
    assert repr(text) in str(caught.value) and "expected" in str(caught.value)


def test_a_rate_without_a_window_and_one_with_two_are_refused() -> None:
    with pytest.raises(ConfigError, match="per"):
        Rate(5)
    with pytest.raises(ConfigError, match="per"):
        Rate("5/s", per="1s")


@pytest.mark.parametrize("jitter", [-0.1, 1.1, NAN, True, "0.5"], ids=repr)
def test_a_wrong_jitter_is_refused(jitter: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Exponential("1s", jitter=jitter)
    assert names(caught, "jitter", jitter)


def test_a_cap_below_the_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="cap='1s'"):
        Exponential("5s", cap="1s")


@pytest.mark.parametrize("wrong", [5, "10/s", Rate, None], ids=repr)
def test_what_is_no_kind_is_refused_everywhere(paceline_time: VirtualTime, wrong: Any) -> None:
    app = App(paceline_time.store)
    makes = [
        lambda: AllOf(RATE, wrong),
        lambda: RATE & wrong,
        lambda: Unlimited() & wrong,
        lambda: Limit("l", wrong),
        lambda: app.limit("l", wrong),
        lambda: Limit("l", RATE, by="group", overrides={"a": wrong}),
        lambda: Queue("q", store=app.store, limits=[wrong]),
    ]
    for make in makes:
        with pytest.raises(ConfigError) as caught:
            make()
        assert repr(wrong) in str(caught.value) and "Rate(" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "group="),
        ({"concurrency": 0}, "group.concurrency=0"),
        ({"concurrency": 1.5}, "group.concurrency=1.5"),
        ({"concurrency": True}, "group.concurrency=True"),
        ({"limiter": 5}, "group.limiter=5"),
        ({"limiter": "10/s"}, "group.limiter='10/s'"),
    ],
    ids=repr,
)
def test_wrong_group_limits_are_refused_a7(options: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GroupLimits(**options)
    assert shown in str(caught.value) and "expected" in str(caught.value)


# limits


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"queues": "mail"}, "queues='mail'"),
        ({"tasks": "send"}, "tasks='send'"),
        ({"queues": []}, "queues=[]"),
        ({"tasks": []}, "tasks=[]"),
        ({"tasks": [""]}, "tasks=''"),
        ({"tasks": [5]}, "tasks=5"),
        ({"by": "tenant"}, "by='tenant'"),
        ({"by": True}, "by=True"),
        ({"overrides": {"a": RATE}}, "overrides="),
        ({"by": "group", "overrides": [RATE]}, "overrides="),
        ({"by": "group", "overrides": {"": RATE}}, "overrides=''"),
        ({"backoff": "1s"}, "backoff='1s'"),
    ],
    ids=repr,
)
async def test_a_wrong_scope_of_a_limit_is_refused_and_nothing_is_declared(
    paceline_time: VirtualTime, options: dict[str, Any], shown: str
) -> None:
    app = App(paceline_time.store)
    with pytest.raises(ConfigError) as caught:
        app.limit("l", RATE, **options)
    assert shown in str(caught.value) and "expected" in str(caught.value)
    await app.queue().counts()
    assert await app.store.limits() == []


@pytest.mark.parametrize("limits", [5, RATE, Limit("l", RATE), "10/s"], ids=repr)
def test_limits_of_a_queue_that_are_no_list_are_refused(paceline_time: VirtualTime, limits: Any) -> None:
    with pytest.raises(ConfigError, match="limits"):
        Queue("q", store=paceline_time.store, limits=limits)


def test_two_limits_of_one_name_with_different_meanings_in_one_program_are_refused(
    paceline_time: VirtualTime,
) -> None:
    with pytest.raises(ConfigError, match="'l'"):
        Queue("q", store=paceline_time.store, limits=[Limit("l", RATE), Limit("l", Concurrency(1))])


# names


@pytest.mark.parametrize("name", NO_NAMES, ids=lambda name: repr(name)[:20])
@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda store, name: Queue(name, store=store), "queue"),
        (lambda store, name: App(store).queue(name), "queue"),
        (lambda store, name: App(store).limit(name, RATE), "name"),
        (lambda store, name: Limiter(name, RATE, store=store), "name"),
        (lambda store, name: Group(name), "group"),
        (lambda store, name: App(store).task(queue=name)(noop), "queue"),
        (lambda store, name: Worker([name], noop, store=store), "queue"),
    ],
    ids=["Queue", "app.queue", "limit", "Limiter", "Group", "task's queue", "Worker"],
)
def test_a_name_that_is_empty_too_long_or_has_control_characters_is_refused(
    paceline_time: VirtualTime, make: Any, option: str, name: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(paceline_time.store, name)
    assert names(caught, option, name)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256], ids=["empty", "control", "long"])
def test_a_namespace_is_a_name_too(name: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        App("memory://", namespace=name)


@pytest.mark.parametrize("name", ["x" * 255, "Zürich", "日本", "a b", "a:b/c", "🚲"], ids=lambda name: name[:5])
async def test_every_other_text_is_a_name(paceline_time: VirtualTime, name: str) -> None:
    queue = Queue(name, store=paceline_time.store)
    job = await queue.add(name, group=name, job_id=name)
    assert (job.queue, job.task, job.group, job.id) == (name, name, name, name)


# jobs


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(({"attempts": value}, f"attempts={value!r}") for value in NO_COUNTS),
    *(({"cost": value}, f"cost={value!r}") for value in NO_COUNTS),
    ({"cost": {"queue:mail": -2}}, "-2"),
    ({"cost": {5: 1}}, "cost=5"),
    *(({"group": value}, f"group={value!r}") for value in ("", 7, True, "a\nb", ["a"], b"a")),
    *(({"job_id": value}, f"job_id={value!r}") for value in ("", 7, "a\nb")),
    *(({"priority": value}, f"priority={value!r}") for value in (0.5, "1", True, None, 2**40, NAN)),
    *(({"delay": value}, f"delay={value!r}") for value in (-1, "5 parsecs", NAN, INF, True, "-1s")),
    *(({"timeout": value}, f"timeout={value!r}") for value in (0, -1, "5 parsecs", NAN, True)),
    *(({"keep": value}, f"keep={value!r}") for value in (-1, "5 parsecs", NAN, INF, True)),
    *(({"retry_delay": value}, f"retry_delay={value!r}") for value in (-1, "5 parsecs", NAN, True)),
    ({"retry_delay": lambda attempt: -1}, "retry_delay(1)=-1"),
    ({"lifo": 1}, "lifo=1"),
    ({"lifo": "yes"}, "lifo='yes'"),
    ({"at": datetime(2031, 1, 1)}, "at=datetime"),
    ({"at": "tomorrow"}, "at='tomorrow'"),
    ({"at": 1_900_000_000}, "at=1900000000"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("options", "shown"), WRONG_OPTIONS, ids=[shown for _, shown in WRONG_OPTIONS])
async def test_a_wrong_job_option_is_refused_and_nothing_is_stored(
    queue: Queue, options: dict[str, Any], shown: str
) -> None:
    await queue.add("t")
    with pytest.raises(ConfigError) as caught:
        await queue.add("t", **options)
    assert shown in str(caught.value) and "expected" in str(caught.value)
    with pytest.raises(ConfigError):
        await queue.add_many([("t", 1), ("t", 2, options)])  # type: ignore[list-item]
    assert await size(queue) == 1


@pytest.mark.parametrize("max_size", [value for value in NO_COUNTS if value is not None], ids=repr)
def test_a_maximum_size_that_is_no_count_is_refused(max_size: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Group("tenant-1", max_size=max_size)
    assert names(caught, "max_size", max_size)


async def test_delay_and_at_together_are_refused(queue: Queue, paceline_time: VirtualTime) -> None:
    with pytest.raises(ConfigError, match="delay"):
        await queue.add("t", delay="1s", at=paceline_time.now())
    assert await size(queue) == 0


@pytest.mark.parametrize("task", NO_NAMES, ids=lambda name: repr(name)[:20])
async def test_a_task_that_is_no_name_is_refused(queue: Queue, task: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        await queue.add(task)
    assert names(caught, "task", task)
    assert await size(queue) == 0


@pytest.mark.parametrize(
    "data",
    [object(), {"deep": [object()]}, {("a", "b"): 1}, lambda: None, "\ud800", NAN, [INF], {"x": -INF}, 1j],
    ids=["object", "deep", "key", "function", "half a character", "nan", "infinity", "-infinity", "complex"],
)
async def test_data_that_is_not_json_is_refused_and_nothing_is_stored(queue: Queue, data: Any) -> None:
    with pytest.raises(NotSerializable):
        await queue.add("t", data)
    with pytest.raises(NotSerializable):
        await queue.add_many([("t", 1), ("t", data)])
    assert await size(queue) == 0


async def test_data_above_the_maximum_is_refused_and_nothing_is_stored(queue: Queue) -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        await queue.add("t", "x" * (1024 * 1024 - 1))
    assert (caught.value.size, caught.value.maximum) == (1024 * 1024 + 1, 1024 * 1024)
    assert await size(queue) == 0
    await queue.add("t", "x" * (1024 * 1024 - 2))
    assert await size(queue) == 1


async def test_a_cost_above_the_limit_is_refused_and_nothing_is_stored(queue: Queue) -> None:
    with pytest.raises(NeverFits, match="'queue:mail'"):
        await queue.add("t", cost=11)
    assert await size(queue) == 0
    await queue.add("t", cost=10)


async def test_a_closed_queue_is_refused_and_nothing_is_stored(queue: Queue, paceline_time: VirtualTime) -> None:
    await queue.close()
    with pytest.raises(QueueClosed):
        await queue.add("t")
    assert await size(queue) == 0


# workers


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        *(({"concurrency": value}, f"concurrency={value!r}") for value in NO_COUNTS),
        *(({"batch": value}, f"batch={value!r}") for value in NO_COUNTS if value is not None),
        *(({"lease": value}, f"lease={value!r}") for value in (0, -1, "5 parsecs", NAN)),
        *(({"max_returns": value}, f"max_returns={value!r}") for value in (0, True)),
        ({"group": 5}, "group=5"),
        ({"group": Concurrency(1)}, "group=Concurrency(1)"),
        ({"limiter": 5}, "limiter=5"),
        ({"isolation": "container"}, "isolation='container'"),
    ],
    ids=repr,
)
def test_a_wrong_option_of_a_worker_is_refused(paceline_time: VirtualTime, options: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Worker("q", noop, store=paceline_time.store, **options)
    assert shown in str(caught.value) and "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": 1.5}, "workers=1.5"),
        ({"queues": "mail"}, "queues='mail'"),
        ({"queues": []}, "queue"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"grace": "-1s"}, "grace='-1s'"),
        ({"grace": "soon"}, "grace='soon'"),
        ({"concurency": 5}, "app.worker has no option 'concurency'; expected queues, concurrency"),
        ({"isolation": "process"}, "app.worker has no option 'isolation'"),  # a task has it
        ({"store": "memory://"}, "app.worker has no option 'store'"),
        ({"batch": 5}, "batch=5"),
    ],
    ids=repr,
)
def test_a_wrong_option_of_an_apps_worker_is_refused(
    paceline_time: VirtualTime, options: dict[str, Any], shown: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        App(paceline_time.store).worker(**options)
    assert shown in str(caught.value)


def test_an_option_that_a_worker_does_not_have_is_refused(paceline_time: VirtualTime) -> None:
    misspelt: Any = {"concurency": 5}
    with pytest.raises(ConfigError, match="Worker has no option 'concurency'; expected concurrency, limiter") as caught:
        Worker("q", noop, store=paceline_time.store, **misspelt)
    assert (caught.value.option, caught.value.value) == ("concurency", 5)


@pytest.mark.parametrize("handler", [None, 5, "send"], ids=repr)
def test_what_is_no_handler_is_refused(paceline_time: VirtualTime, handler: Any) -> None:
    with pytest.raises(ConfigError, match="handler="):
        Worker("q", handler, store=paceline_time.store)


@pytest.mark.parametrize("queues", [[], (), None, 5], ids=repr)
def test_a_worker_without_a_queue_is_refused(paceline_time: VirtualTime, queues: Any) -> None:
    with pytest.raises(ConfigError, match="queue"):
        Worker(queues, noop, store=paceline_time.store)
