"""Whole queues, a stretch in one step: the server answers others in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from paceline.job import JobRecord
from paceline.stores.interface import Filter
from paceline.stores.redis.records import CODES, decode_jobs

_decode = msgspec.msgpack.Decoder().decode
STRETCH = 500
"""So many jobs are moved or removed in one step."""
GLANCE = 2_000
"""So many are looked at in one step by a search."""


async def sweep(value: Callable[..., Awaitable[Any]], name: str, wanted: dict[str, Any]) -> int:
    """Move or remove jobs; returns how many."""
    total: int = 0
    start: int | bool = 0
    while True:
        number, start = await value(name, {**wanted, "from": start, "most": STRETCH})
        total += number
        if not start:
            return total


async def find(run: Callable[..., Awaitable[list[Any]]], filter: Filter) -> list[JobRecord]:
    """The jobs that a filter wants."""
    state = None if filter.state is None else CODES.get(filter.state, 0)
    wanted: dict[str, Any] = msgspec.structs.asdict(filter) | {"state": state, "most": GLANCE}
    found: list[JobRecord] = []
    start, after = 0, filter.after
    while True:
        page = {**wanted, "limit": filter.limit - len(found), "from": start, "after": after}
        answer = await run("find", page, again=True)
        now, start = _decode(answer[0])
        after = None
        found += decode_jobs(answer, now)
        if not start:
            return found
