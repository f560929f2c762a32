"""Arrays in the server's own binary form. psycopg writes them item by item in Python: most of the time of a bulk."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format


class Packed(NamedTuple):
    """What goes to the server as it is."""

    body: bytes


class _PackedDumper(Dumper):  # type: ignore[misc]  # psycopg is not there when types are checked
    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj.body


psycopg.adapters.register_dumper(Packed, _PackedDumper)


class Kind(NamedTuple):
    """The number of a type in PostgreSQL; for numbers, the size of an item and the letter `struct` has for it."""

    oid: int
    size: int = 0
    letter: str = ""


TEXT = Kind(25)
BYTEA = Kind(17)
BIGINT = Kind(20, 8, "q")
INT = Kind(23, 4, "i")
BOOLEAN = Kind(16, 1, "?")


def array(kind: Kind, items: Sequence[Any]) -> Packed | None:
    """An array of one dimension; nothing at all where every item is None."""
    number, nulls = len(items), items.count(None)
    if not number:
        return Packed(pack(">iiI", 0, 0, kind.oid))
    if nulls == number:
        return None
    if kind.letter and not nulls:
        both: list[Any] = [kind.size] * (2 * number)
        both[1::2] = items
        body = pack(">" + ("i" + kind.letter) * number, *both)
    elif kind.letter:
        form = ">i" + kind.letter
        body = b"".join([NULL if item is None else pack(form, kind.size, item) for item in items])
    else:
        raw = [item.encode() if isinstance(item, str) else item for item in items]
        body = b"".join([NULL if item is None else len(item).to_bytes(4, "big") + item for item in raw])
    return Packed(pack(">iiIii", 1, bool(nulls), kind.oid, number, 1) + body)


NULL = pack(">i", -1)
"""The size of an item that is not there."""


def arrays(kinds: Sequence[Kind], columns: Sequence[Sequence[Any]]) -> list[Packed | None]:
    """Columns, each of its kind."""
    return [array(kind, column) for kind, column in zip(kinds, columns, strict=True)]
