"""From an add to the handler's first line in another process, on an idle queue; in memory, in the same process."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import median, quantiles
from typing import Any

from bench.adapters.interface import PAYLOAD, Adapter
from bench.cases import Case, Size
from bench.crew import crew_on
from bench.places import Place
from bench.report import Table, figure, spread_of
from bench.systems import PEERS, STORES, adapter

SAMPLES = 150
WARM_UP = 20
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.030
PATIENCE = 30.0


def cases(size: Size) -> list[Case]:
    if size.quick:
        return [Case("latency", store, "ours:plain", 50) for store in STORES]
    found = []
    for store in STORES:
        specs = ["ours:plain", *(["ours:plain,durability=full"] if store == "sqlite" else [])]
        specs += [
            f"{peer.system}:{peer.settings[0]}" for peer in PEERS if peer.store == store and peer not in size.absent
        ]
        found += [Case("latency", store, spec, SAMPLES) for spec in specs]
    return found


async def measure(place: Place, case: Case) -> dict[str, Any]:
    system = adapter(case.spec, place.url)
    await system.open()
    if case.store == "memory":
        began, busy = await _in_here(system, case.n)
    else:
        began, busy = await _elsewhere(system, place, case)
    await system.close()
    late = [(start - sent) / 1e6 for sent, start in sorted(began)[WARM_UP:]]
    assert len(late) == case.n, len(late)
    return {
        "label": system.label.replace(", no limits", ""),
        "p50": median(late),
        "p99": quantiles(late, n=100)[98],
        "max": max(late),
        "busy": busy * 100,
    }


async def _elsewhere(system: Adapter, place: Place, case: Case) -> tuple[list[tuple[int, int]], float]:
    """When each was sent and when it began; and how busy the worker's process was."""
    async with crew_on(place.url, case.spec, 1) as crew:
        start = time.perf_counter()
        for number in range(1, case.n + WARM_UP + 1):
            await _pause()
            await system.add(_sent())
            await crew.wait_for(number)
        took = time.perf_counter() - start
    return crew.began, crew.cpu / took


async def _in_here(system: Adapter, samples: int) -> tuple[list[tuple[int, int]], float]:
    began: list[tuple[int, int]] = []
    more, stop = asyncio.Event(), asyncio.Event()

    def handle(payload: dict[str, Any]) -> None:
        began.append((payload["sent"], time.monotonic_ns()))
        more.set()

    working = asyncio.create_task(system.work(handle, stop))
    await asyncio.sleep(0.2)
    start, used = time.perf_counter(), time.process_time()
    for _ in range(samples + WARM_UP):
        await _pause()
        more.clear()
        await system.add(_sent())
        await asyncio.wait_for(more.wait(), PATIENCE)
    busy = (time.process_time() - used) / (time.perf_counter() - start)
    stop.set()
    await working
    return began, busy


_pauses = random.Random(7)


async def _pause() -> None:
    """At random, so that no rhythm of a system's own looks meets them."""
    await asyncio.sleep(_pauses.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))


def _sent() -> dict[str, Any]:
    return PAYLOAD | {"sent": time.monotonic_ns()}


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["from an add to the start elsewhere, ms", "p50", "p99", "longest", "spread of p50", "worker's cpu, %"]
    rows = [
        [
            f"{key.split()[0]}: {runs[0]['label']}",
            *(figure(runs, name) for name in ("p50", "p99", "max")),
            spread_of(runs, "p50"),
            figure(runs, "busy"),
        ]
        for key, runs in results.items()
    ]
    return [Table(head, rows)]
