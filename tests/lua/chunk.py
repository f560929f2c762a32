"""A compiled chunk of Lua 5.1: which functions it has, where they stand, and which globals they touch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

HEADER = 12
GETGLOBAL, SETGLOBAL = 5, 7
SIZES = {0: 0, 1: 1, 3: 8}
"""Bytes of a constant by its type: nil, boolean, number."""
STRING = 4


@dataclass
class Function:
    """One function: its lines, the globals it reads and writes, and the functions inside it."""

    first: int
    last: int
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    inside: list[Function] = field(default_factory=list)

    def every(self) -> Iterator[Function]:
        yield self
        for function in self.inside:
            yield from function.every()


class Reader:
    """Reads what `string.dump` wrote on a 64-bit machine."""

    def __init__(self, dumped: bytes) -> None:
        self._bytes = dumped
        self._at = HEADER

    def _take(self, how: str) -> Any:
        found = struct.unpack_from(how, self._bytes, self._at)
        self._at += struct.calcsize(how)
        return found[0] if len(found) == 1 else found

    def _string(self) -> str:
        length = self._take("<Q")
        text = self._bytes[self._at : self._at + max(length - 1, 0)]
        self._at += length
        return text.decode("latin-1")

    def function(self) -> Function:
        self._string()
        first, last = self._take("<ii")
        self._at += 4
        code = [self._take("<I") for _ in range(self._take("<i"))]
        constants = [self._constant() for _ in range(self._take("<i"))]
        found = Function(first, last)
        for instruction in code:
            if instruction & 0x3F in (GETGLOBAL, SETGLOBAL):
                names = found.reads if instruction & 0x3F == GETGLOBAL else found.writes
                names.add(str(constants[instruction >> 14]))
        found.inside = [self.function() for _ in range(self._take("<i"))]
        lines = self._take("<i")
        self._at += 4 * lines
        for _ in range(self._take("<i")):
            self._string()
            self._at += 8
        for _ in range(self._take("<i")):
            self._string()
        return found

    def _constant(self) -> str | None:
        kind = self._take("<B")
        if kind == STRING:
            return self._string()
        self._at += SIZES[kind]
        return None
