"""What the bench asks of a limiter library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Ask = Callable[[], Any]
"""One question: truthy if granted; awaited if the library is asynchronous."""


class LimiterAdapter:
    """A library with one of its strategies, in memory or on the server at `url`."""

    label: str
    asynchronous = False

    def __init__(self, url: str, strategy: str) -> None:
        self.url = url
        self.strategy = strategy

    async def open(self) -> None:
        """Connect."""

    async def empty(self, key: str, starts: int, seconds: int) -> Ask:
        """A limit of so many starts in so many seconds that nobody has used yet."""
        raise NotImplementedError

    async def forget(self, key: str, starts: int, seconds: int) -> None:
        """That limit is not asked again; only where keys that are left would slow the library down."""

    async def close(self) -> None:
        """Let go of the store."""
