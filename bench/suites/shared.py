"""One limit that does not bind, kept by 1 to 8 processes together: what it costs beside no limit."""

from __future__ import annotations

from typing import Any

from bench.adapters.interface import PAYLOAD
from bench.cases import Case, Size
from bench.crew import crew_on
from bench.places import Place
from bench.report import Table, figure, middle, spread_of
from bench.systems import adapter

SECOND = 1_000_000_000
BULK = 1_000
JOBS = {"sqlite": 10_000, "postgres": 20_000, "redis": 30_000}


def cases(size: Size) -> list[Case]:
    stores, counts = (("postgres",), (8,)) if size.quick else (tuple(JOBS), (1, 2, 4, 8))
    return [
        Case("shared", store, f"ours:{shape}", JOBS[store] // (2 if size.quick else 1), count)
        for store in stores
        for count in counts
        for shape in ("plain", "limit")
    ]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    """The queue is paused until all are ready: from the first handler anywhere to the last."""
    system: Any = adapter(case.spec, place.url)
    await system.open()
    await system.queue.pause()
    for first in range(0, case.n, BULK):
        await system.add_many(PAYLOAD, min(BULK, case.n - first))
    async with crew_on(place.url, case.spec, case.processes, how="tally") as crew:
        server = place.cpu()
        await system.queue.resume()
        await crew.wait_for(case.n)
        server = place.cpu() - server
    await system.close()
    assert sum(count for _, _, count in crew.tallies) == case.n, crew.tallies
    busy = [(first, last) for first, last, count in crew.tallies if count]
    seconds = (max(last for _, last in busy) - min(first for first, _ in busy)) / SECOND
    return {
        "label": system.label,
        "drain": case.n / seconds,
        "cpu_us": crew.cpu / case.n * 1e6,
        "server_us": server / case.n * 1e6,
        "helpers": len(busy),
    }


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = [
        "processes on one queue: jobs/s",
        "no limits",
        "a shared limit",
        "it costs",
        "spread",
        "µs/job",
        "of the server",
    ]
    rows = []
    for key, free in results.items():
        if "ours:plain" in key and (on := results.get(key.replace("plain", "limit"))):
            store, _, count = key.partition(" ")
            number = count.partition(" x")[2] or "1"
            cost = 1 - (middle(on, "drain") or 0) / (middle(free, "drain") or 1)
            rows.append(
                [
                    f"{store}, {number} process{'es' if number != '1' else ''}",
                    figure(free, "drain"),
                    figure(on, "drain"),
                    f"{cost:.0%}",
                    spread_of(on, "drain"),
                    figure(on, "cpu_us"),
                    figure(on, "server_us"),
                ]
            )
    return [Table(head, rows)]
