"""Arguments and results to JSON bytes and back; the only module that knows msgspec's encoders."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.errors import NotSerializable, PayloadTooLarge
from paceline.text import clean, show

MAX_PAYLOAD = 1024 * 1024
NULL = b"null"

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


def encode(value: Any, *, maximum: int = MAX_PAYLOAD, what: str = "data", checked: bool = False) -> bytes:
    """JSON bytes of a value; `NotSerializable` or `PayloadTooLarge` say what is wrong with it."""
    if value is None:
        return NULL
    try:
        if not checked and type(value) not in _SAFE:
            _check_parts(value, what)
        body = _encoder.encode(value)
    except NotSerializable:
        raise
    except UnicodeEncodeError as error:
        lone = show(error.object[error.start])
        why = f"it contains the lone surrogate {lone}, which is no character; decode texts with errors='replace'"
        raise NotSerializable(f"{what} {show(value)} cannot be written as JSON: {why}") from error
    except Exception as error:  # also what a value of the user's own class raises when it is asked
        raise NotSerializable(f"{what} {show(value)} cannot be written as JSON: {clean(error, 300)}") from error
    if len(body) > maximum:
        raise PayloadTooLarge(len(body), maximum, what)
    return body


_SAFE = (str, int, bool, bytes)


def _check_parts(value: Any, what: str) -> None:
    """What JSON would silently change: NaN and infinity become null, and of keys with the same text one is lost."""
    if isinstance(value, float):
        if value != value or value in (math.inf, -math.inf):
            raise NotSerializable(
                f"{what} {show(value)} cannot be written as JSON: NaN and infinity are no JSON numbers"
            )
    elif isinstance(value, dict):
        _check_keys(value, what)
        for part in value.values():
            if type(part) not in _SAFE:
                _check_parts(part, what)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            if type(part) not in _SAFE:
                _check_parts(part, what)
    elif value is not None:
        for name in field_names(type(value)) or ():
            _check_parts(getattr(value, name, None), what)


def _check_keys(value: dict[Any, Any], what: str) -> None:
    if all(type(key) is str for key in value):
        return
    texts = _decoder.decode(_encoder.encode(dict.fromkeys(value)))
    if len(texts) != len(value):
        raise NotSerializable(
            f"{what} {show(value)} cannot be written as JSON: keys are text there, and two of these keys have the same"
        )


def field_names(kind: type) -> Sequence[str] | None:
    """The fields of a class that JSON writes as an object; None for all other types."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else [each.name for each in attributes]


def decode(body: bytes) -> Any:
    """The value of JSON bytes as plain Python."""
    return None if body == NULL else _decoder.decode(body)


def convert(value: Any, wanted: Any) -> Any:
    """Turn plain JSON values into the type a signature asks for; values that do not fit stay as they are."""
    if wanted is None or wanted is Any:
        return value
    try:
        return msgspec.convert(value, wanted, str_keys=True)
    except (msgspec.ValidationError, TypeError):
        return value


def fingerprint(task: str, body: bytes) -> str:
    """A hash of task and data that does not depend on the order of keys."""
    text = _sorted_encoder.encode([task, decode(body)])
    return hashlib.sha256(text).hexdigest()
