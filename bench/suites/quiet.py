"""Eight workers whose every job is blocked: how often they ask the server, and how soon the next one then starts."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.adapters.interface import PAYLOAD, Rate
from bench.cases import Case, Size
from bench.crew import crew_on
from bench.places import Place
from bench.report import Table, figure
from bench.systems import adapter

ROUNDS = 1
"""They are counted, not timed."""
WORKERS = 8
SETTLING = 1.0
"""Seconds until those that looked together have gone to sleep."""
STARTS = 10


def cases(size: Size) -> list[Case]:
    """`n` is for how many seconds they are watched."""
    watched = 2 if size.quick else 20
    return [Case("quiet", store, "ours:plain", watched, WORKERS) for store in ("postgres", "redis")]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    limit = Rate(STARTS, case.n + 2 * SETTLING)
    system = adapter(case.spec, place.url, limit)
    await system.open()
    async with crew_on(place.url, case.spec, case.processes, limit) as crew:
        await system.add_many(PAYLOAD | {"sent": 0}, 2 * STARTS)
        await crew.wait_for(STARTS)
        await asyncio.sleep(SETTLING)
        before = place.commands()
        await asyncio.sleep(case.n)
        after = place.commands()
        await crew.wait_for(2 * STARTS)
    starts = sorted(await system.starts())
    await system.close()
    assert before is not None and after is not None
    late = [
        (second - first) / 1e3 - limit.seconds * 1e3 for first, second in zip(starts, starts[STARTS:], strict=False)
    ]
    return {
        "label": system.label,
        "seconds": case.n,
        "each": (after - before) / case.processes,
        "late": max(late),
    }


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["8 workers, all blocked", "watched, s", "commands/worker", "then the latest of 10 starts, ms late"]
    rows = [
        [key.split()[0], *(figure(runs, name) for name in ("seconds", "each", "late"))] for key, runs in results.items()
    ]
    return [Table(head, rows)]
