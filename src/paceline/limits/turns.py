"""Whose go it is among the groups of a queue: start-time fair queueing with one virtual time per queue.

A group's turn changes only when it joins and when it starts, never while it waits, blocked or not.
"""

from __future__ import annotations

ONE = 1 << 16
"""The turn of one start at weight 1; a power of two, so that weights divide it well."""


def joins_at(own: int, virtual_time: int) -> int:
    """The turn of a group that had nothing waiting: behind everyone who waits already."""
    return max(own, virtual_time + ONE)


def after_start(own: int, virtual_time: int, cost: int = 1, weight: int = 1) -> int:
    """The turn of a group that just started; counted from now, so that time spent blocked is no credit."""
    return (own if own > virtual_time else virtual_time) + cost * ONE // weight
