"""What an operator sees at a glance: queues, and the store itself."""

from __future__ import annotations

import msgspec


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at a glance."""

    name: str
    counts: dict[str, int]
    groups: int
    """How many groups have a job that waits."""
    paused: bool = False
    paused_tasks: tuple[str, ...] = ()
    paused_groups: tuple[str, ...] = ()


class About(msgspec.Struct, frozen=True):
    """What a store says of itself: which server, how it is set, and what an operator should know."""

    server: str
    facts: dict[str, str] = {}
    warnings: tuple[str, ...] = ()
