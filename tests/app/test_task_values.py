"""What a task's annotations promise its function and its caller: the same types on both sides of the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypedDict
from uuid import UUID

import msgspec
import pytest

from paceline import App, ConfigError, JobFailed, NotSerializable, PayloadTooLarge, open_store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NUMBER = UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Address:
    street: str
    since: datetime


class Order(msgspec.Struct):
    id: UUID
    lines: list[Address]


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Address, Address("Main", NOON)),
        (Order, Order(NUMBER, [Address("Main", NOON)])),
        (datetime, NOON),
        (timedelta, timedelta(seconds=90)),
        (UUID, NUMBER),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.RED),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (bytes, b"\x00\xff"),
        (list[Address], [Address("Main", NOON)]),
        (dict[str, UUID], {"a": NUMBER}),
        (Address | None, Address("Main", NOON)),
        (Address | None, None),
        (int, 3),
        (int, 2**70),
        (dict[str, Any], {"a": [1, 2.5, None, True, "ü"]}),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value))[:40],
)
async def test_arguments_and_results_come_as_their_annotated_types(app: App, annotation: Any, value: Any) -> None:
    seen: list[Any] = []

    async def echo(given):  # type: ignore[no-untyped-def]
        seen.append(given)
        return given

    echo.__annotations__ = {"given": annotation, "return": annotation}
    task = app.task()(echo)
    job = await task.enqueue(value)
    await task.enqueue(given=value)
    await app.worker().run(until_empty=True)
    assert seen == [value, value]
    assert [type(each) for each in seen] == [type(value)] * 2
    result = await job.result()
    assert result == value and type(result) is type(value)
    assert type(job.result_value) is type(value)


async def test_app_get_gives_the_result_as_its_annotated_type_too(app: App) -> None:
    @app.task()
    async def when() -> datetime:
        return NOON

    job = await when.enqueue()
    await app.worker().run(until_empty=True)
    found = await app.get(job.id)
    assert found is not None and found.result_value == NOON


@pytest.mark.parametrize(
    "value", [Address("Main", NOON), NOON, b"x", (1, 2), {1, 2}, {1: 2}, Colour.RED, NUMBER], ids=repr
)
async def test_without_annotations_only_plain_json_is_taken(app: App, value: Any) -> None:
    seen: list[Any] = []

    @app.task()
    async def record(given):  # type: ignore[no-untyped-def]
        seen.append(given)

    plain = {"a": [1, 2.5, None, True, "ü"]}
    await record.enqueue(plain)
    for wrong in (value, [value], {"a": value}):
        with pytest.raises(NotSerializable, match="given="):
            await record.enqueue(wrong)
    await app.worker().run(until_empty=True)
    assert seen == [plain]


async def test_an_annotation_that_cannot_be_resolved_leaves_plain_json(app: App) -> None:
    seen: list[Any] = []

    async def record(given):  # type: ignore[no-untyped-def]
        seen.append(given)

    record.__annotations__ = {"given": "NotImportedHere"}
    await app.task()(record).enqueue([1])
    await app.worker().run(until_empty=True)
    assert seen == [[1]]


async def test_the_snapshot_is_taken_at_enqueue(app: App) -> None:
    seen: list[Any] = []

    @app.task()
    async def record(given: list[int]) -> None:
        seen.append(given)

    value = [1]
    await record.enqueue(value)
    value.append(2)
    await app.worker().run(until_empty=True)
    assert seen == [[1]]


class Opaque:
    def __repr__(self) -> str:
        return "<Opaque>"


def recursive() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [Opaque(), {"deep": [Opaque()]}, recursive(), "\ud800", lambda: None, float("nan"), [float("inf")]],
    ids=["object", "deep", "endless", "half a character", "function", "nan", "infinity"],
)
async def test_an_argument_that_is_not_json_is_refused_and_nothing_is_stored(app: App, value: Any) -> None:
    @app.task()
    async def record(given: Any) -> None: ...

    with pytest.raises(NotSerializable):
        await record.enqueue(value)
    with pytest.raises(NotSerializable):
        await record.enqueue_many([(1,), (value,)])
    assert sum((await app.queue().counts()).values()) == 0


async def test_the_error_shows_the_value_and_the_reason(app: App) -> None:
    @app.task()
    async def record(given: Any) -> None: ...

    with pytest.raises(NotSerializable, match="Opaque"):
        await record.enqueue(Opaque())


async def test_a_payload_above_one_mebibyte_is_refused_and_the_maximum_can_be_set() -> None:
    big = "x" * (1024 * 1024)
    app = App(open_store("memory://"))

    @app.task()
    async def record(given: str) -> None: ...

    with pytest.raises(PayloadTooLarge) as caught:
        await record.enqueue(big)
    assert caught.value.maximum == 1024 * 1024 and caught.value.size > 1024 * 1024
    assert str(caught.value.size) in str(caught.value) and str(caught.value.maximum) in str(caught.value)
    assert sum((await app.queue().counts()).values()) == 0
    await record.enqueue(big[:-100])

    small = App(open_store("memory://", max_payload=100))
    with pytest.raises(PayloadTooLarge):
        await small.task(name="record")(record.function).enqueue("x" * 100)
    large = App(open_store("memory://", max_payload=2 * 1024 * 1024))
    await large.task(name="record")(record.function).enqueue(big)


async def test_a_result_that_is_not_json_fails_the_job_with_the_reason(app: App) -> None:
    @app.task()
    async def odd() -> Any:
        return Opaque()

    job = await odd.enqueue()
    await app.worker().run(until_empty=True)
    with pytest.raises(JobFailed, match="Opaque"):
        await job.result()


class Mixed(Enum):
    A = "a"
    B = 1


class Model:
    """As pydantic's models look."""

    model_fields = None


class Sized(TypedDict):
    a: int


class Touchy:
    """Its comparison raises."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Measured:
    value: float


ODD_OFFSET = datetime(2020, 1, 1, tzinfo=timezone(timedelta(seconds=3601)))
UNSTORABLE: list[tuple[Any, Any]] = [
    (datetime, ODD_OFFSET),
    (datetime, datetime(2020, 1, 1, tzinfo=timezone(timedelta(seconds=86399)))),
    (datetime, datetime(2030, 10, 27, 2, 30, fold=1)),
    (datetime, ODD_OFFSET.date()),
    (float, 2**60 + 1),
    (dict, {1: "one", "1": "uno"}),
    (dict[str, Any], {"a": (1, 2)}),
    (Sized, {"a": 1, "lost": 2}),
    (Colour, "red"),
    (bytes, "eA=="),
    (set, {b"x"}),
    (int, "x"),
    (None, 3),
    (list[int], (1, 2)),
    (Measured, Measured(float("nan"))),
    (list[Any], [Touchy()]),
    (Any, {1: "one", "1": "uno"}),
    (Any, [{1: "one", "1": "uno"}]),
    (Any, Measured(float("inf"))),
]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize(("annotation", "value"), UNSTORABLE, ids=lambda value: repr(value)[:40])
async def test_a_result_that_would_come_back_changed_fails_the_job_at_once(
    app: App, annotation: Any, value: Any, is_async: bool
) -> None:
    runs: list[int] = []

    def plain():  # type: ignore[no-untyped-def]
        runs.append(1)
        return value

    async def coroutine():  # type: ignore[no-untyped-def]
        return plain()

    handler: Any = coroutine if is_async else plain
    handler.__annotations__ = {"return": annotation}
    job = await app.task(attempts=3, name="work")(handler).enqueue()
    await app.worker().run(until_empty=True)

    with pytest.raises(JobFailed, match=r"NotSerializable: result.*its result is lost"):
        await job.result()
    assert runs == [1]


@pytest.mark.parametrize(
    ("annotation", "value", "comes"),
    [
        (Any, (1, 2), [1, 2]),
        (Any, {1: 2}, {"1": 2}),
        (object, NOON, "2030-01-01T12:00:00Z"),
        (NoReturn, 3, 3),
        (int, None, None),
        (float, 3, 3.0),
        (Awaitable[tuple[int, int]], (1, 2), (1, 2)),
        ("Unknown", (1, 2), [1, 2]),
    ],
    ids=str,
)
async def test_what_a_result_without_a_checked_annotation_comes_as(
    app: App, annotation: Any, value: Any, comes: Any
) -> None:
    async def work():  # type: ignore[no-untyped-def]
        return value

    work.__annotations__ = {"return": annotation}
    job = await app.task()(work).enqueue()
    await app.worker().run(until_empty=True)

    result = await job.result()
    assert result == comes and type(result) is type(comes)


async def test_a_return_annotation_may_name_a_class_that_comes_later(app: App) -> None:
    space: dict[str, Any] = {}
    exec("def work() -> 'Later': return Later(3.5)", space)
    task = app.task()(space["work"])
    space["Later"] = Measured
    job = await task.enqueue()
    await app.worker().run(until_empty=True)

    assert await job.result() == Measured(3.5)


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Model, "pydantic model"),
        (list[Model], "pydantic model"),
        (Path, "Path cannot be written"),
        (Mixed, "Enum"),
        (str | bytes, "more than one str-like"),
        (dict[Mixed, int], "Enum"),
        (dict[bool, int], "no keys of type bool"),
        (Iterator[int], "cannot be written"),
    ],
    ids=str,
)
def test_a_result_that_could_never_be_stored_is_refused_where_the_task_is_made(
    app: App, annotation: Any, why: str
) -> None:
    def work():  # type: ignore[no-untyped-def]
        pass

    work.__annotations__ = {"return": annotation}
    with pytest.raises(ConfigError, match=rf"return annotation.*{why}") as caught:
        app.task()(work)
    assert caught.value.option == "return"


@pytest.mark.parametrize("data", [{1: "one", "1": "uno"}, [{"a": {NUMBER: 1, str(NUMBER): 2}}]], ids=str)
async def test_data_of_which_json_would_lose_a_key_is_refused(app: App, data: Any) -> None:
    queue = app.queue("q")

    with pytest.raises(NotSerializable, match="two of these keys have the same"):
        await queue.add("t", data)
    with pytest.raises(NotSerializable, match="NaN"):
        await queue.add("t", [Measured(float("nan"))])
    assert sum((await queue.counts()).values()) == 0
    assert (await queue.add("t", {1: "one", 2: "two"})).data == {"1": "one", "2": "two"}


# processes


PROGRAM = """
import os
from dataclasses import dataclass
from paceline import App, current_job, Fail

app = App("memory://isolated")

@dataclass
class Point:
    x: int

@app.task(isolation="process")
def where(point: Point) -> tuple[int, int, str]:
    return os.getpid(), point.x, current_job().id

@app.task(isolation="process")
async def shout() -> Point:
    await current_job().progress(50, "half way")
    await current_job().log("a line")
    return Point(7)

@app.task(isolation="process", attempts=3)
def changed() -> list[int]:
    return (1, 2)

@app.task(isolation="process")
def fail() -> None:
    raise Fail("on purpose")
"""


async def test_isolation_process_runs_the_function_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "isolated_tasks.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    import isolated_tasks as module  # type: ignore[import-not-found]

    try:
        located = await module.where.enqueue(module.Point(3))
        shouted = await module.shout.enqueue()
        failed = await module.fail.enqueue()
        changed = await module.changed.enqueue()
        await module.app.worker(concurrency=1).run(until_empty=True)
        process, x, job_id = await located.result()
        assert process != os.getpid() and (x, job_id) == (3, located.id)
        assert await shouted.result() == module.Point(7)
        await shouted.refresh()
        assert shouted.logs == ("a line",)
        assert (await failed.refresh()).error == "on purpose"
        with pytest.raises(JobFailed, match=r"NotSerializable: result=\(1, 2\) does not fit"):
            await changed.result()
    finally:
        sys.modules.pop("isolated_tasks", None)


def test_isolation_process_refuses_a_function_that_no_process_can_import(app: App) -> None:
    with pytest.raises(ConfigError, match="top of a module"):
        app.task(isolation="process")(lambda: None)
