"""A limit of 100 starts a second that binds, kept by 1 and by 4 processes: is it exact, is it used, at what price?"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from bench.adapters.interface import PAYLOAD, Adapter, Rate
from bench.cases import Case, Size
from bench.crew import Crew, crew_on
from bench.places import Place
from bench.report import Table, figure, middle
from bench.service import Caller, Service
from bench.systems import PEERS, adapter

LIMIT = Rate(100, 1.0)
SECOND = 1_000_000_000
JOBS = 500
OURS = ("memory", "sqlite", "postgres", "redis")
LIMITED = {("sqlite", "huey"), ("redis", "dramatiq"), ("redis", "bullmq")}
"""Peers with a rate limit that all their workers keep together."""


def cases(size: Size) -> list[Case]:
    if size.quick:
        return [Case("binding", store, "ours:plain", 250, 4) for store in OURS[1:]]
    found = [Case("binding", "memory", "ours:plain", JOBS)]
    for store in OURS[1:]:
        specs = ["ours:plain", "ours:plain,guard=0"]
        peers = [peer for peer in PEERS if (peer.store, peer.system) in LIMITED and peer not in size.absent]
        specs += [f"{peer.system}:{peer.settings[0]}" for peer in peers if peer.store == store]
        found += [Case("binding", store, spec, JOBS, count) for spec in specs for count in (1, 4)]
    return found


async def measure(place: Place, case: Case) -> dict[str, Any]:
    """Jobs that are all there at once. By the stamps of the system itself where it keeps any, else by the handlers."""
    system = adapter(case.spec, place.url, LIMIT)
    await system.open()
    service = Service()
    if case.store == "memory":
        began, cpu, commands = await _in_here(system, case.n), None, None
    else:
        async with crew_on(place.url, case.spec, case.processes, LIMIT) as crew:
            before = place.commands()
            await _add(system, case.n)
            await crew.wait_for(case.n)
            after = place.commands()
        began, cpu = _times(crew), crew.cpu / case.n * 1e6
        commands = None if before is None or after is None else (after - before) / case.n
    arrivals = service.arrivals()
    stamps = sorted(stamp * 1_000 for stamp in await system.starts())
    await system.close()
    assert len(began) == case.n and len(stamps) in (0, case.n), (len(began), len(stamps))
    at = stamps or began
    most = LIMIT.starts
    window = round(LIMIT.seconds * SECOND)
    late = [(stamp - at[n] - window) / 1e6 for n, stamp in enumerate(at[most:])]
    return {
        "label": f"{system.label}, {case.processes} process{'es' if case.processes > 1 else ''}",
        "worst": worst_window(at, window),
        "worst_begun": worst_window(began, window),
        "worst_arrived": worst_window(arrivals, window) if len(arrivals) == case.n else None,
        "used": (case.n - 1) // most * window / (at[-1] - at[0]),
        "late": median(late),
        "late_p99": quantiles(late, n=100)[98],
        "cpu_us": cpu,
        "commands": commands,
    }


async def _add(system: Adapter, jobs: int) -> None:
    payload = PAYLOAD | {"sent": 0}
    if system.bulk:
        await system.add_many(payload, jobs)
    else:
        await system.add_one_by_one(payload, jobs)


async def _in_here(system: Adapter, jobs: int) -> list[int]:
    began: list[int] = []
    done, stop = asyncio.Event(), asyncio.Event()
    caller = Caller()

    def handle(payload: dict[str, Any]) -> None:
        began.append(time.monotonic_ns())
        caller.call()
        if len(began) == jobs:
            done.set()

    await _add(system, jobs)
    working = asyncio.create_task(system.work(handle, stop))
    await asyncio.wait_for(done.wait(), 60)
    stop.set()
    await working
    caller.close()
    return began


def _times(crew: Crew) -> list[int]:
    return sorted(at for _, at in crew.began)


def worst_window(stamps: Sequence[int], length: int) -> int:
    """The most stamps in any window of this length; half-open: one that is exactly `length` old counts no more."""
    ordered = sorted(stamps)
    return max(bisect_left(ordered, at + length) - place for place, at in enumerate(ordered))


def _most(runs: list[dict[str, Any]], name: str) -> str:
    found = [run[name] for run in runs if run.get(name) is not None]
    return str(max(found)) if found else "–"


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    counts = ["worst second", "by handlers", "at a service"]
    head = ["100 starts a second", *counts, "used", "late ms", "p99", "µs/job", "commands/job"]
    rows = [
        [
            f"{key.split()[0]}: {runs[0]['label']}",
            *(_most(runs, name) for name in ("worst", "worst_begun", "worst_arrived")),
            f"{middle(runs, 'used'):.1%}",
            *(figure(runs, name) for name in ("late", "late_p99", "cpu_us", "commands")),
        ]
        for key, runs in results.items()
    ]
    return [Table(head, rows)]
