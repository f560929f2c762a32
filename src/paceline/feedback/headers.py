"""The headers of one response: found by name whatever the case, and read without ever failing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from .dates import http_date
from .resets import wait_until

_logger = logging.getLogger("paceline.feedback")
_LONGEST = 80
_Value = TypeVar("_Value")


@runtime_checkable
class HasItems(Protocol):
    """A mapping, or what the HTTP libraries have instead of one."""

    def items(self) -> Iterable[tuple[str | bytes, str | bytes]]: ...


HeaderSource = HasItems | Iterable[tuple[str | bytes, str | bytes]]


@dataclass(frozen=True, slots=True)
class Headers:
    """Values by lower-case name, and the instant at which the service believes it answered."""

    fields: dict[str, str]
    server_now: float

    @classmethod
    def of(cls, source: HeaderSource, *, now: float) -> Headers:
        fields = _by_name(source)
        # Date has whole seconds, so a wait counted from it is up to a second too long, never too short.
        sent_at = cls(fields, now).read(lambda text: http_date(text, now), "date")
        return cls(fields, now if sent_at is None else sent_at)

    def read(self, reader: Callable[[str], _Value | None], *names: str) -> _Value | None:
        """What `reader` makes of the first of these headers that makes sense."""
        for name in names:
            if name in self.fields:
                value = reader(self.fields[name])
                if value is not None:
                    return value
                self.warn(name)
        return None

    def reset(self, *names: str) -> float | None:
        """Seconds until the reset in the first of these headers that makes sense."""
        return self.read(lambda text: wait_until(text, self.server_now), *names)

    def warn(self, name: str) -> None:
        _logger.warning("ignored header %r: cannot make sense of %r", _cut(name), _cut(self.fields[name]))


def printable(text: str) -> str:
    """Text from outside, made fit to be shown: one line, at most 80 characters."""
    return _cut("".join(character for character in text.strip() if character.isprintable()))


def _by_name(source: HeaderSource) -> dict[str, str]:
    fields: dict[str, str] = {}
    pairs = source.items() if isinstance(source, HasItems) else source
    for raw_name, raw_value in pairs:
        name, value = _text(raw_name).strip().lower(), _text(raw_value).strip()
        # A repeated field is one list (RFC 9110, 5.3); httpx hands it over joined in the same way.
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
