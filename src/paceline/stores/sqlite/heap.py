"""A heap whose tail stays in the file: only as much as is looked at is read, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Key = tuple[int, int]

LOWEST: Key = (-(1 << 63), -(1 << 63))


class PagedHeap(Generic[T]):
    """Everything up to `edge` is here, the rest is read when it is needed; what `valid` refuses is a leftover."""

    __slots__ = ("_count", "_read", "_valid", "complete", "edge", "entries")

    def __init__(
        self,
        read: Callable[[Key], tuple[list[tuple[Key, T]], bool]],
        valid: Callable[[Key, T], bool],
        *,
        complete: bool,
    ) -> None:
        self.entries: list[tuple[Key, int, T]] = []
        self.edge = LOWEST
        self.complete = complete
        """Nothing of it is left in the file."""
        self._read = read
        self._valid = valid
        self._count = 0

    def push(self, key: Key, item: T) -> bool:
        """Put an item in its place; False when that is beyond what was read: the file has it."""
        if not self.complete and key > self.edge:
            return False
        self._count = count = self._count + 1
        entries = self.entries
        if entries and entries[0][2] is item:
            # It goes from the front to another place: one move instead of two.
            heapreplace(entries, (key, count, item))
        else:
            heappush(entries, (key, count, item))
        return True

    def top(self) -> tuple[Key, T] | None:
        """The first item."""
        while True:
            entries = self.entries
            while entries:
                key, _, item = entries[0]
                if self._valid(key, item):
                    return key, item
                heappop(entries)
            if self.complete:
                return None
            self._more()

    def pop(self) -> None:
        """Drop the first item."""
        heappop(self.entries)

    def _more(self) -> None:
        found, complete = self._read(self.edge)
        self.fill(found, complete)

    def fill(self, found: list[tuple[Key, Any]], complete: bool) -> None:
        """Take a page: it is in order and behind everything that is here, so the list stays a heap."""
        for key, item in found:
            self._count += 1
            self.entries.append((key, self._count, item))
        if found:
            self.edge = found[-1][0]
        self.complete = complete
