"""How one argument travels: as plain JSON, checked; or as what its annotation says, converted back and compared."""

from __future__ import annotations

import collections.abc
import math
import typing
from datetime import datetime, time
from types import NoneType
from typing import Any

import msgspec
from msgspec import inspect as shapes

from paceline import codec
from paceline.errors import ConfigError, NotSerializable, WrongArguments
from paceline.text import show
from paceline.verdicts import Fail

_ATOMS = frozenset({str, int, bool, NoneType})
_FLAT = (shapes.StrType, shapes.IntType, shapes.BoolType, shapes.NoneType, shapes.LiteralType)
_KEYS = (
    *(shapes.StrType, shapes.IntType, shapes.FloatType, shapes.DecimalType, shapes.EnumType, shapes.LiteralType),
    *(shapes.DateTimeType, shapes.DateType, shapes.TimeType, shapes.TimeDeltaType, shapes.UUIDType, shapes.BytesType),
    *(shapes.AnyType, shapes.UnionType),
)
"""What JSON can write as the key of an object; of a union, each value is compared."""
_ANYTHING = 1 << 62
_PLAIN_JSON = "without an annotation only plain JSON is kept; annotate it, e.g. tuple[int, int]"


class Misfit(Fail):
    """A job's data does not fit its task: trying again would not help."""


class Plan:
    """What a parameter that cannot be converted does: whoever gives it is told."""

    packed: type | None = None
    """Values of exactly this type are written as they are, without asking."""
    unpacked: type | None = None
    """And these are read as they are."""

    def __init__(self, name: str, refused: str = "") -> None:
        self.name = name
        self._refused = refused

    def pack(self, value: Any) -> Any:
        """What is written as JSON for a value."""
        raise ConfigError(self._refused, option=self.name, value=value)

    def unpack(self, value: Any) -> Any:
        """The argument for what was written."""
        raise Misfit(self._refused)

    def wrong(self, value: Any, why: object) -> WrongArguments:
        return WrongArguments(f"{self.name}={show(value)} does not fit its annotation: {why}")

    def changed(self, value: Any, back: Any) -> WrongArguments:
        if show(value) == show(back):
            return self.wrong(value, "what is read back does not equal it, as a NaN never does")
        instead = "; give a list, or annotate a tuple" if type(value) is tuple and type(back) is list else ""
        return self.wrong(value, f"it would arrive as {show(back)}{instead}")


class JSON(Plan):
    """No annotation, `Any`, or one that nobody can resolve: plain JSON values, which arrive as they are."""

    def __init__(self, name: str, why: str = _PLAIN_JSON) -> None:
        super().__init__(name)
        self._why = why

    def pack(self, value: Any) -> Any:
        if type(value) not in _ATOMS:
            try:
                check_json(value)
            except (TypeError, RecursionError) as error:
                text = (
                    f"{self.name}={show(value)} cannot be written as JSON and read back as it is: {error}; {self._why}"
                )
                raise NotSerializable(text) from error
        return value

    def unpack(self, value: Any) -> Any:
        return value


class Plain(Plan):
    """`str`, `int`, `bool`, `float`, `None`: JSON has them."""

    def __init__(self, name: str, kind: type) -> None:
        super().__init__(name)
        self._kind = self.unpacked = kind
        self.packed = None if kind is float else kind

    def pack(self, value: Any) -> Any:
        if type(value) is not self._kind:
            if not (self._kind is float and type(value) is int and _is_exact(value)):
                raise self.wrong(value, f"expected {self._kind.__name__}, got {type(value).__name__}")
        elif self._kind is float and not math.isfinite(typing.cast(float, value)):
            raise NotSerializable(
                f"{self.name}={value!r} cannot be written as JSON: NaN and infinity are no numbers there"
            )
        return value

    def unpack(self, value: Any) -> Any:
        if type(value) is self._kind:
            return value
        if self._kind is float and type(value) is int and _is_exact(value):
            return float(value)
        raise Misfit(f"{self.name}={show(value)}: expected {self._kind.__name__}, got {type(value).__name__}")


class Shaped(Plan):
    """Lists and dictionaries of plain values: what fits arrives as it is."""

    def __init__(self, name: str, hint: Any, *, walk: bool) -> None:
        super().__init__(name)
        self._hint = hint
        self._walk = walk
        """True when a part may be anything, or a number that JSON lacks."""

    def pack(self, value: Any) -> Any:
        try:
            back = msgspec.convert(value, self._hint)
        except msgspec.ValidationError as error:
            raise self.wrong(value, error) from None
        if self._walk and type(back) is type(value):
            try:
                check_json(value)
            except (TypeError, RecursionError) as error:
                raise NotSerializable(f"{self.name}={show(value)} cannot be written as JSON: {error}") from error
        if back != value or type(back) not in (type(value), float):
            raise self.changed(value, back)
        return value

    def unpack(self, value: Any) -> Any:
        return _converted(self.name, value, self._hint)


class Rich(Plan):
    """Everything else that msgspec converts: written, read back and compared. Nothing arrives as something else."""

    def __init__(self, name: str, hint: Any) -> None:
        super().__init__(name)
        self._hint = hint

    def pack(self, value: Any) -> Any:
        body = codec.encode(value, maximum=_ANYTHING, what=self.name)
        try:
            back = msgspec.convert(codec.decode(body), self._hint, str_keys=True)
        except msgspec.ValidationError as error:
            raise self.wrong(value, error) from None
        except Exception as error:  # the user's own class refuses what it wrote
            raise self.wrong(value, f"it cannot be read back ({type(error).__name__}: {error})") from error
        if not same(value, back):
            raise self.changed(value, back)
        return msgspec.Raw(body)

    def unpack(self, value: Any) -> Any:
        return _converted(self.name, value, self._hint)


def plan_for(name: str, hint: Any) -> Plan:
    """How values of a type travel; `TypeError` when nobody could convert them, `NameError` when it is incomplete."""
    if isinstance(hint, typing.ParamSpecArgs | typing.ParamSpecKwargs) or hint in (Any, object):
        return JSON(name)
    if hint in (None, NoneType):
        return Plain(name, NoneType)
    if hint in (str, int, bool, float):
        return Plain(name, hint)
    if typing.get_origin(hint) is collections.abc.Iterable:
        hint = collections.abc.Sequence[typing.get_args(hint)]  # type: ignore[misc]
    msgspec.json.Decoder(hint)  # refuses unions that JSON cannot tell apart
    nodes = list(_parts(shapes.type_info(hint), set()))
    for node in nodes:
        if isinstance(node, shapes.CustomType) and node.cls is not object:
            raise TypeError(_why_not(node.cls))
        if isinstance(node, shapes.DictType) and not isinstance(node.key_type, _KEYS):
            kind = getattr(node.key_type, "cls", None)
            shown = type(node.key_type).__name__.removesuffix("Type").lower() if kind is None else kind.__name__
            raise TypeError(f"JSON has no keys of type {shown}; take a list of pairs, or a dict with text as keys")
    flat = (*_FLAT, shapes.ListType, shapes.DictType, shapes.UnionType, shapes.FloatType, shapes.AnyType)
    keys = [node.key_type for node in nodes if isinstance(node, shapes.DictType)]
    if all(isinstance(node, flat) for node in nodes) and all(isinstance(key, shapes.StrType) for key in keys):
        return Shaped(name, hint, walk=any(isinstance(node, shapes.FloatType | shapes.AnyType) for node in nodes))
    return Rich(name, hint)


def check_json(value: Any) -> None:
    """`TypeError` unless JSON gives the value back as it is."""
    kind = type(value)
    if kind is list:
        for part in value:
            if type(part) not in _ATOMS:
                check_json(part)
    elif kind is dict:
        for key, part in value.items():
            if type(key) is not str:
                raise TypeError(f"the key {show(key)} is no text")
            if type(part) not in _ATOMS:
                check_json(part)
    elif kind is float:
        if not math.isfinite(value):
            raise TypeError("NaN and infinity are no numbers there")
    elif kind not in _ATOMS:
        raise TypeError(f"{show(value)} is of type {kind.__name__}")


def same(given: Any, back: Any) -> bool:
    """True when a value came back as it was given, types of its parts included."""
    kind = type(given)
    if kind is not type(back):
        return kind is int and type(back) is float and given == back
    if kind in (list, tuple) or isinstance(given, tuple):
        return len(given) == len(back) and all(map(same, given, back))
    if kind is dict:
        return len(given) == len(back) and all(map(same, given, back)) and all(map(same, given.values(), back.values()))
    if kind in (datetime, time):
        return _same_time(given, back)
    names = codec.field_names(kind)
    if names is not None:
        return all(same(getattr(given, name, None), getattr(back, name, None)) for name in names)
    try:
        return bool(given == back)
    except Exception:  # a value that cannot even be compared, such as a signalling NaN
        return False


def _same_time(given: Any, back: Any) -> bool:
    """The same on the clock and the same offset; which of two equal times is meant, the offset says or else `fold`."""
    if (given.tzinfo is None) != (back.tzinfo is None) or given.utcoffset() != back.utcoffset():
        return False
    if given.tzinfo is None and given.fold != back.fold:
        return False
    return bool(given.replace(tzinfo=None) == back.replace(tzinfo=None))


def _parts(node: Any, seen: set[int]) -> typing.Iterator[Any]:
    """A type and everything it is made of."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, shapes.Type):
        yield node
    for name in node.__struct_fields__:
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, shapes.Type | shapes.Field):
                yield from _parts(part, seen)


def _why_not(kind: type) -> str:
    if hasattr(kind, "__pydantic_validator__") or hasattr(kind, "model_fields"):
        return (
            f"{kind.__name__} is a pydantic model, which is not supported yet; take dict[str, Any] and give "
            "model.model_dump(mode='json'), or use a dataclass or a msgspec.Struct"
        )
    name = getattr(kind, "__name__", kind)
    return f"{name} cannot be written as JSON; take what it is made from: text, numbers, a dataclass"


def _is_exact(number: int) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


def _converted(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint, str_keys=True)
    except Exception as error:  # also what the user's own class raises
        raise Misfit(f"{name}={show(value)}: {error}") from error
