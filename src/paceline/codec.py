"""Arguments and results to JSON bytes and back; the only module that knows msgspec's encoders."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec

from paceline.errors import NotSerializable, PayloadTooLarge

MAX_PAYLOAD = 1024 * 1024
NULL = b"null"

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


def encode(value: Any, *, maximum: int = MAX_PAYLOAD, what: str = "data") -> bytes:
    """JSON bytes of a value; `NotSerializable` or `PayloadTooLarge` say what is wrong with it."""
    if value is None:
        return NULL
    try:
        if type(value) not in _SAFE:
            _check_numbers(value, what)
        body = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NotSerializable(f"{what} {_short(value)} cannot be written as JSON: {error}") from error
    if len(body) > maximum:
        raise PayloadTooLarge(len(body), maximum)
    return body


_SAFE = (str, int, bool, bytes)


def _check_numbers(value: Any, what: str) -> None:
    """JSON has no NaN and no infinity: they would silently become null."""
    if isinstance(value, float):
        if value != value or value in (math.inf, -math.inf):
            raise NotSerializable(f"{what} {value!r} cannot be written as JSON: NaN and infinity are no JSON numbers")
    elif isinstance(value, dict):
        for part in value.values():
            if type(part) not in _SAFE:
                _check_numbers(part, what)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            if type(part) not in _SAFE:
                _check_numbers(part, what)


def decode(body: bytes) -> Any:
    """The value of JSON bytes as plain Python."""
    return None if body == NULL else _decoder.decode(body)


def convert(value: Any, wanted: Any) -> Any:
    """Turn plain JSON values into the type a signature asks for; values that do not fit stay as they are."""
    if wanted is None or wanted is Any:
        return value
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, TypeError):
        return value


def fingerprint(task: str, body: bytes) -> str:
    """A hash of task and data that does not depend on the order of keys."""
    text = _sorted_encoder.encode([task, decode(body)])
    return hashlib.sha256(text).hexdigest()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
