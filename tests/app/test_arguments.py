"""The handler gets exactly what was enqueued, or the call is refused where it is made."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import App, ConfigError, EnqueueError, NotSerializable, Queue, WrongArguments, open_store
from paceline.argument_types import same
from paceline.arguments import Arguments
from paceline.codec import decode, encode

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Address:
    street: str
    since: datetime
    tags: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Odd:
    number: float


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Tree:
    name: str
    below: list[Tree] = field(default_factory=list)


@dataclass
class Loose:
    extra: Any


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Pair:
    one: int


class Movie(TypedDict, total=False):
    title: str
    year: int


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def task_of(annotation: Any) -> Arguments:
    def function(given):  # type: ignore[no-untyped-def]
        return given

    function.__annotations__ = {"given": annotation}
    return Arguments(function)


def travel(arguments: Arguments, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    return arguments.unpack(decode(encode(arguments.pack(args, kwargs), checked=True)))


EXACT: list[tuple[Any, Any]] = [
    (dict[int, str], {1: "a"}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[UUID, int], {UUID(int=5): 1}),
    (dict[date, list[int]], {date(2030, 1, 1): [1]}),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, str], (1, "a")),
    (frozenset[str], frozenset({"a"})),
    (Point, Point(1, 2)),
    (Movie, {"title": "Up"}),
    (Literal["a", 3], 3),
    (UserId, UserId(7)),
    (Address | None, None),
    (list[Address | None], [Address("Main", NOON), None]),
    (Box[int], Box(3)),
    (Tree, Tree("a", [Tree("b")])),
    (Odd, Odd(1.5)),
    (Cat | Dog, Dog("Rex")),
    (Level, Level.LOW),
    (Sequence[int], [1, 2]),
    (Iterable[int], [1, 2]),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (float, 3),
    (list[float], [1, 2.5]),
    (int | str | None, "a"),
    (datetime, datetime(2030, 6, 1, 12)),
    (datetime, datetime(2030, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))),
    (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (datetime, datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5)))),
    (time, time(12, 30, 1, 5)),
    (time, time(12, 30, tzinfo=timezone(timedelta(hours=2)))),
    (timedelta, timedelta(days=-3, microseconds=7)),
    (Decimal, Decimal("1.10")),
    (bytes, b"\x00\xff"),
    (list, [1, "a", None, {"b": [1.5]}]),
    (dict, {"a": 1}),
    (object, {"a": 1}),
    (Any, None),
    (None, None),
    (T, [1]),
]


@pytest.mark.parametrize(("annotation", "value"), EXACT, ids=str)
def test_a_value_that_fits_arrives_as_it_was(annotation: Any, value: Any) -> None:
    (came,), _ = travel(task_of(annotation), value)

    assert same(value, came) and (came == value or isinstance(value, Odd) or annotation is datetime)


REFUSED: list[tuple[Any, Any]] = [
    (int, "seven"),
    (int, 3.0),
    (int, True),
    (bool, 1),
    (str, None),
    (float, 2**60 + 1),
    (float, "1.5"),
    (datetime, "tomorrow"),
    (datetime, "2030-01-01T12:00:00Z"),
    (date, NOON),
    (Address, {"street": "Main", "since": NOON}),
    (Colour, "red"),
    (list[int], (1, 2)),
    (list[int], [1, "a"]),
    (list[float], [True]),
    (tuple[int, int], (1, 2, 3)),
    (tuple[int, ...], [1]),
    (set[int], [1]),
    (dict[str, int], {1: 1}),
    (dict[int, str], {"1": "a"}),
    (Literal["a"], "b"),
    (Loose, Loose((1, 2))),
    (Cat | Dog, {"type": "Cat", "name": "Tom"}),
    (Annotated[int, msgspec.Meta(ge=0)], -1),
    (Point, (1, 2)),
    (Sequence[int], (1, 2)),
    (Iterable[int], (1, 2)),
    (Movie, {"title": "Up", "lost": 2}),
    (datetime, datetime(2030, 10, 27, 2, 30, fold=1)),
    (time, time(2, 30, fold=1)),
    (datetime, datetime(2030, 1, 1, tzinfo=timezone(timedelta(seconds=3601)))),
    (datetime, datetime(2030, 1, 1, tzinfo=timezone(timedelta(seconds=86399)))),
]


@pytest.mark.parametrize(("annotation", "value"), REFUSED, ids=str)
async def test_a_value_that_does_not_fit_is_refused_where_it_is_enqueued(app: App, annotation: Any, value: Any) -> None:
    async def note(given):  # type: ignore[no-untyped-def]
        raise AssertionError

    note.__annotations__ = {"given": annotation}
    task = app.task()(note)

    for call in (task.enqueue(value), task.enqueue(given=value), task.enqueue_many([{"given": value}])):
        with pytest.raises(WrongArguments, match=r"task 'note'.*given=") as caught:
            await call
        assert isinstance(caught.value, EnqueueError) and isinstance(caught.value, TypeError)
    assert sum((await app.queue().counts()).values()) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("annotation", [float, list[float], dict[str, Any], Any, float | None], ids=str)
def test_numbers_that_json_lacks_are_refused(annotation: Any, value: float) -> None:
    given = [value] if annotation == list[float] else {"a": value} if annotation == dict[str, Any] else value

    with pytest.raises(NotSerializable):
        task_of(annotation).pack((given,), {})


class Model:
    """As pydantic's models look."""

    model_fields = None


@dataclass
class Holder:
    model: Model


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Address | Tree, "more than one dataclass"),
        (str | datetime, "more than one str-like"),
        (Model, "pydantic model.*model_dump"),
        (list[Model | None], "pydantic model"),
        (Holder, "pydantic model"),
        (Path, "Path cannot be written"),
        (complex, "complex cannot"),
        (dict[Pair, int], "no keys of type Pair"),
        (dict[Point, int], "no keys of type Point"),
        (dict[tuple[int, int], int], "no keys of type"),
        (dict[bool, str], "no keys of type bool"),
        (list[dict[None, str]], "no keys of type none"),
        (type, "type cannot"),
    ],
    ids=str,
)
def test_what_nobody_can_convert_is_refused_where_the_task_is_made(app: App, annotation: Any, why: str) -> None:
    def note(given, other: int = 1):  # type: ignore[no-untyped-def]
        pass

    note.__annotations__["given"] = annotation
    with pytest.raises(ConfigError, match=f"'given'.*{why}") as caught:
        app.task()(note)
    assert caught.value.option == "given"


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (Sequence[int], (1, 2), r"would arrive as \[1, 2\]; give a list, or annotate a tuple"),
        (dict[int | str, str], {1: "one", "1": "uno"}, "two of these keys have the same"),
        (Decimal, Decimal("NaN"), "does not equal it, as a NaN never does"),
        (Any, (1, 2), r"only plain JSON is kept; annotate it, e\.g\. tuple"),
        (datetime, datetime(2030, 10, 27, 2, 30, fold=1), r"fold=1\) does not fit"),
    ],
    ids=str,
)
def test_the_error_says_why_a_value_would_not_arrive(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(EnqueueError, match=why):
        task_of(annotation).pack((value,), {})


@pytest.mark.parametrize(
    ("key", "value"),
    [(float, 1.5), (Decimal, Decimal("1.10")), (bytes, b"x"), (timedelta, timedelta(1)), (Literal["a", "b"], "a")],
    ids=str,
)
def test_keys_of_these_types_arrive_as_they_were(key: Any, value: Any) -> None:
    (came,), _ = travel(task_of(dict[key, int]), {value: 1})

    assert same({value: 1}, came)


async def test_a_parameter_with_a_default_is_refused_only_when_it_is_given(app: App) -> None:
    seen: list[Any] = []

    @app.task()
    async def note(number: int, where: Path = Path("/tmp")) -> None:
        seen.append((number, where))

    with pytest.raises(ConfigError, match="'where'"):
        await note.enqueue(1, where=Path("/srv"))
    await note.enqueue(1)
    await app.worker().run(until_empty=True)
    assert seen == [(1, Path("/tmp"))]


async def test_an_annotation_that_cannot_be_resolved_concerns_its_own_parameter_only(app: App) -> None:
    seen: list[Any] = []

    @app.task()
    async def note(when: datetime, amount: Fraction, price: Decimal) -> None:
        seen.append((when, amount, price))

    with pytest.raises(NotSerializable, match=r"amount=.*'Fraction' cannot be resolved"):
        await note.enqueue(NOON, Decimal(1), Decimal("2.50"))  # type: ignore[arg-type]
    await note.enqueue(NOON, 5, Decimal("2.50"))  # type: ignore[arg-type]
    await app.worker().run(until_empty=True)
    assert seen == [(NOON, 5, Decimal("2.50"))]


async def test_classes_of_the_function_around_and_classes_that_come_later_are_found(app: App) -> None:
    seen: list[Any] = []

    @dataclass
    class Local:
        number: int

    @app.task()
    async def near(given: Local, later: list[Later]) -> None:
        seen.append((given, later))

    await near.enqueue(Local(1), [Later(2)])
    await app.worker().run(until_empty=True)
    assert seen == [(Local(1), [Later(2)])]


async def test_variadic_and_special_parameters_are_converted_too(app: App) -> None:
    seen: list[Any] = []

    @app.task()
    async def note(first: int, /, second: date, *rest: date, key: Colour = Colour.RED, **more: Decimal) -> None:
        seen.append((first, second, rest, key, more))

    day = date(2030, 1, 1)
    await note.enqueue(1, day, day, key=Colour.BLUE, price=Decimal(1))
    await note.enqueue(1, second=day)
    for wrong in (note.enqueue(1, day, "x"), note.enqueue(1, day, price=1.5)):  # type: ignore[arg-type]
        with pytest.raises(WrongArguments):
            await wrong
    await app.worker().run(until_empty=True)
    assert seen == [(1, day, (day,), Colour.BLUE, {"price": Decimal(1)}), (1, day, (), Colour.RED, {})]


@pytest.mark.parametrize("call", [{}, {"args": (1, 2, 3)}, {"args": (1,), "kwargs": {"a": 1}}, {"kwargs": {"c": 1}}])
async def test_a_call_that_does_not_fit_the_signature_is_refused(app: App, call: dict[str, Any]) -> None:
    @app.task()
    async def note(a: int, b: int = 2) -> None: ...

    with pytest.raises(WrongArguments, match=r"task 'note': .*argument"):
        await note.enqueue(*call.get("args", ()), **call.get("kwargs", {}))


def test_partials_and_callable_objects_have_signatures_too() -> None:
    def base(when: date, number: int) -> None: ...

    class Handler:
        def __call__(self, when: date) -> None: ...

    assert travel(Arguments(functools.partial(base, number=1)), date(2030, 1, 1))[0] == [date(2030, 1, 1)]
    assert travel(Arguments(Handler()), date(2030, 1, 1))[0] == [date(2030, 1, 1)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"args": [], "kwargs": {}}, "missing a required argument: 'when'"),
        ({"args": ["2030-01-01"], "kwargs": {"gone": 1}}, "unexpected keyword argument 'gone'"),
        ({"args": ["tomorrow"], "kwargs": {}}, "when='tomorrow'"),
        ({"args": ["2030-01-01", "seven"], "kwargs": {}}, "number='seven': expected int, got str"),
        ({"args": "x"}, 'expected {"args"'),
        (None, 'expected {"args"'),
    ],
)
async def test_data_of_an_older_program_fails_the_job_at_once(url: str, data: Any, why: str) -> None:
    ran: list[Any] = []
    app = App(open_store(url))

    @app.task(attempts=5)
    async def note(when: date, number: int = 1) -> None:
        ran.append(when)

    @app.task(attempts=5, name="plain")
    def plain(when: date, number: int = 1) -> None:
        ran.append(when)

    async with app:
        queue = Queue("default", store=app.store)
        jobs = [await queue.add(name, data, attempts=5) for name in ("note", "plain")]
        await app.worker().run(until_empty=True)
        for job in jobs:
            await job.refresh()
            assert (job.state, job.attempts_made) == ("failed", 1)
            assert f"does not fit task {job.task!r}" in (job.error or "") and why in (job.error or "")
    assert ran == []


async def test_an_error_of_the_handler_itself_still_uses_its_attempts(app: App) -> None:
    @app.task(attempts=3)
    async def note(number: int) -> None:
        raise TypeError("of its own")

    job = await note.enqueue(1)
    await app.worker().run(until_empty=True)
    assert (await job.refresh()).attempts_made == 3


@dataclass
class Later:
    number: int


scalars: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (str, st.text()),
    (bool, st.booleans()),
    (float, st.floats() | st.integers()),
    (bytes, st.binary()),
    (datetime, st.datetimes(timezones=st.none() | st.timezones())),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals()),
    (Colour, st.sampled_from(Colour)),
    (Point, st.builds(Point, st.integers(), st.integers())),
    (Odd, st.builds(Odd, st.floats())),
    (Loose, st.builds(Loose, st.integers() | st.text() | st.tuples(st.integers()) | st.dates())),
    (
        Any,
        st.recursive(st.none() | st.text() | st.floats() | st.dates(), lambda deep: st.lists(deep) | st.tuples(deep)),
    ),
]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 0) -> tuple[Any, Any]:
    """A type, and a value that may or may not fit it."""
    annotation, values = draw(st.sampled_from(scalars))
    value = draw(values)
    if depth < 2 and draw(st.booleans()):
        inner, one = draw(typed_values(depth=depth + 1))
        shape = draw(st.sampled_from(["list", "tuple", "dict", "keys", "optional", "box"]))
        if shape == "list":
            return list[inner], [one] * draw(st.integers(0, 3))
        if shape == "tuple":
            return tuple[inner, ...], (one,) * draw(st.integers(0, 3))
        if shape == "dict":
            return dict[str, inner], {text: one for text in draw(st.lists(st.text(), max_size=3))}
        if shape == "keys" and annotation not in (Any, Loose, Odd, Decimal):
            return dict[annotation, inner], {value: one}
        if shape == "optional" and inner is not Any:
            return inner | None, draw(st.sampled_from([one, None]))
        if shape == "box":
            return Box[inner], Box(one)
    if draw(st.integers(0, 9)) == 0:
        value = draw(draw(st.sampled_from(scalars))[1])
    return annotation, value


@settings(max_examples=400)
@given(typed_values())
def test_what_arrives_is_what_was_given_or_the_call_is_refused(case: tuple[Any, Any]) -> None:
    annotation, value = case
    try:
        arguments = task_of(annotation)
        data = encode(arguments.pack((value,), {}), checked=True)
    except (ConfigError, EnqueueError):
        return

    ((came,), _) = arguments.unpack(decode(data))

    assert same(value, came), (annotation, value, came)
