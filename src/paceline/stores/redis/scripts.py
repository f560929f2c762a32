"""The Lua scripts: each file of a step, with the files it includes put in by name."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)


class Script:
    """One step: its text, and the name under which the server keeps it."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _assemble(name)
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


@cache
def script(name: str) -> Script:
    """The script of one step."""
    return Script(name)


def _assemble(name: str) -> bytes:
    included: set[str] = set()

    def expand(text: str) -> str:
        return _INCLUDE.sub(lambda found: once(found[1]), text)

    def once(part: str) -> str:
        if part in included:
            return ""
        included.add(part)
        return expand(_read(part))

    return expand(_read(name)).encode()


def _read(name: str) -> str:
    return (files("paceline.stores.redis") / "lua" / f"{name}.lua").read_text("utf-8")
