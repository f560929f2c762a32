"""The part of RFC 9651 that the RateLimit fields use: lists and dictionaries of items with parameters."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Value = str | int | float | bytes | bool

_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_EQUALS = re.compile("=")
_SEMICOLON = re.compile("; *")
_COMMA = re.compile(r"[ \t]*,[ \t]*")
_VALUE = re.compile(
    r"""%?(?P<string>"(?:[ !#-\[\]-~]|\\["\\])*")"""
    r"|(?P<decimal>-?[0-9]{1,12}\.[0-9]{1,3})"
    r"|@?(?P<integer>-?[0-9]{1,15})"
    r"|:(?P<bytes>[A-Za-z0-9+/]*={0,2}):"
    r"|\?(?P<boolean>[01])"
    r"|(?P<token>[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*)"
)
_ESCAPE = re.compile(r"\\(.)")
_Member = TypeVar("_Member")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A value and its parameters; a token and a string are both text."""

    value: Value
    parameters: dict[str, Value]


def parse_list(text: str) -> list[Item] | None:
    """The members of a list; None when any part is malformed, as the RFC demands."""
    scanner = _Scanner(text)
    try:
        return list(scanner.members(scanner.item))
    except ValueError:
        return None


def parse_dictionary(text: str) -> dict[str, Item] | None:
    """The members of a dictionary, the last one of a repeated key; None when any part is malformed."""
    scanner = _Scanner(text)
    try:
        return dict(scanner.members(scanner.entry))
    except ValueError:
        return None


class _Scanner:
    """Walks along a field; raises ValueError where the text leaves the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text.strip(" \t")
        self.position = 0

    def members(self, member: Callable[[], _Member]) -> Iterator[_Member]:
        if not self.text:
            return
        yield member()
        while self.position < len(self.text):
            self.need(_COMMA)
            yield member()

    def entry(self) -> tuple[str, Item]:
        key = self.need(_KEY)[0]
        if self.take(_EQUALS):
            return key, self.item()
        return key, Item(value=True, parameters=self.parameters())

    def item(self) -> Item:
        return Item(value=self.value(), parameters=self.parameters())

    def parameters(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while self.take(_SEMICOLON):
            key = self.need(_KEY)[0]
            found[key] = self.value() if self.take(_EQUALS) else True
        return found

    def value(self) -> Value:
        match = self.need(_VALUE)
        text = match[match.lastgroup or 0]
        match match.lastgroup:
            case "string":
                return _ESCAPE.sub(r"\1", text[1:-1])
            case "integer":
                return int(text)
            case "decimal":
                return float(text)
            case "bytes":
                return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
            case "boolean":
                return text == "1"
            case _:
                return text

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def need(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = self.take(pattern)
        if match is None:
            raise ValueError(f"no {pattern.pattern} at {self.position}")
        return match
