"""The steps in Lua: one library of functions, put together from the files in `lua/`, each included by name."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^ *-- include: (\w+)\n", re.MULTILINE)


class Library:
    """The text that a server must know, under a name that no other version has."""

    def __init__(self) -> None:
        body = _expand("library")
        self.name = "paceline_" + hashlib.sha256(body.encode()).hexdigest()[:12]
        self.text = f"#!lua name={self.name}\nlocal LIBRARY = '{self.name}'\n{body}".encode()
        self._functions: dict[str, bytes] = {}

    def function(self, step: str) -> bytes:
        """The name of one step."""
        found = self._functions.get(step)
        if found is None:
            found = self._functions[step] = f"{self.name}_{step}".encode()
        return found


@cache
def library() -> Library:
    """The library of this version."""
    return Library()


def _expand(name: str) -> str:
    text = (files("paceline.stores.redis") / "lua" / f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(lambda found: _expand(found[1]), text)
