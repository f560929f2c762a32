"""What a worker and its jobs take beside time: resident memory, processor time while idle, connections, the longest
stall of the event loop, and what is left in the store of jobs that are gone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.adapters.interface import PAYLOAD, Adapter
from bench.cases import Case, Size
from bench.collector import settle
from bench.crew import crew_on
from bench.places import Place
from bench.process import Usage, usage_of
from bench.report import Table, figure
from bench.systems import PEERS, STORES, adapter

ROUNDS = 1
"""They are counted and weighed, not timed; growth shows over many jobs in one process."""
JOBS, QUICK_JOBS, PEERS_JOBS = 200_000, 3_000, 10_000
IDLE, QUICK_IDLE = 5.0, 1.0
"""Seconds that an idle worker is watched."""
LAPS, QUICK_LAPS = 20, 4
"""Jobs come in so many heaps, each when the one before is done."""
BULK = 1_000
MIB = 2**20


def cases(size: Size) -> list[Case]:
    found = []
    for store in STORES:
        found.append(Case("resources", store, "ours:plain", QUICK_JOBS if size.quick else JOBS))
        for peer in PEERS:
            if peer.store == store and peer not in size.absent and not size.quick:
                some = max(500, int(PEERS_JOBS * peer.share))
                found.append(Case("resources", store, f"{peer.system}:{peer.settings[0]}", some))
    return found


async def measure(place: Place, case: Case) -> dict[str, Any]:
    """An idle worker, then all jobs in heaps."""
    idle_for, laps = (QUICK_IDLE, QUICK_LAPS) if case.n == QUICK_JOBS else (IDLE, LAPS)
    system = adapter(case.spec, place.url)
    await system.open()
    await system.add(PAYLOAD | {"sent": 0})
    adders = place.connections()
    async with _worker(system, place, case) as worker:
        await worker.done(1)
        idle = await _idle(worker, place, idle_for)
        before = place.traces()
        weights, connections, done = [], [], 1
        for lap in range(laps):
            heap = case.n * (lap + 1) // laps - case.n * lap // laps
            await _add(system, heap)
            connections.append(place.connections())
            done += heap
            await worker.done(done)
            weights.append(worker.usage().memory)
        after = place.traces()
    await system.close()
    # In memory the adds and the weighing share the loop and would be what is found; not every peer has such a loop.
    own = case.spec.startswith("ours:") and case.store != "memory"
    first = max(laps // 10, 1)
    return {
        "label": system.label.replace(", no limits", ""),
        "jobs": case.n,
        **idle,
        "memory": weights[-1] / MIB,
        "growth": (weights[-1] - weights[first - 1]) / (case.n * (laps - first) / laps),
        "connections": None if adders is None else max(filter(None, connections)) - adders,
        "stall_ms": worker.stalls[0] if own else None,
        "stall_cpu_ms": worker.stalls[1] if own else None,
        "left": (after["bytes"] - before["bytes"]) / MIB if after else None,
        "wal": (after["wal"] - before["wal"]) / case.n if "wal" in after else None,
        "dead": after.get("dead"),
    }


async def _idle(worker: Worker, place: Place, seconds: float) -> dict[str, float]:
    await asyncio.sleep(1)
    before, server = worker.usage(), place.cpu()
    await asyncio.sleep(seconds)
    after = worker.usage()
    return {
        "idle_memory": after.memory / MIB,
        "idle_ms": (after.cpu - before.cpu) / seconds * 1e3,
        "server_ms": (place.cpu() - server) / seconds * 1e3,
    }


async def _add(system: Adapter, jobs: int) -> None:
    payload = PAYLOAD | {"sent": 0}
    if not system.bulk:
        await system.add_one_by_one(payload, jobs)
        return
    for first in range(0, jobs, BULK):
        await system.add_many(payload, min(BULK, jobs - first))


class Worker:
    """A worker that is watched; `pid` is its process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stalls = (0.0, 0.0)

    def usage(self) -> Usage:
        return usage_of(self.pid)

    async def done(self, jobs: int) -> None:
        raise NotImplementedError


class Elsewhere(Worker):
    def __init__(self, crew: Any) -> None:
        super().__init__(crew.processes[0].pid)
        self._crew = crew

    async def done(self, jobs: int) -> None:
        await self._crew.wait_for(jobs)


class InHere(Worker):
    """In memory the worker is in the process of the store."""

    def __init__(self) -> None:
        super().__init__(os.getpid())
        self.count = 0

    def handle(self, payload: dict[str, Any]) -> None:
        self.count += 1

    async def done(self, jobs: int) -> None:
        while self.count < jobs:  # noqa: ASYNC110 - nothing is added to what a handler does
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _worker(system: Adapter, place: Place, case: Case) -> AsyncIterator[Worker]:
    if case.store != "memory":
        async with crew_on(place.url, case.spec, 1, how="watched") as crew:
            worker: Worker = Elsewhere(crew)
            yield worker
        worker.stalls = crew.stalls
        return
    here, stop = InHere(), asyncio.Event()
    settle()
    working = asyncio.create_task(system.work(here.handle, stop))
    yield here
    stop.set()
    await working


WORKER = {
    "jobs": "jobs",
    "idle_memory": "MiB idle",
    "memory": "MiB after them",
    "growth": "bytes more/job",
    "idle_ms": "idle, cpu ms/s",
    "server_ms": "of the server",
    "connections": "connections",
    "stall_ms": "longest stall, ms",
    "stall_cpu_ms": "of it busy",
}
STORE = {"jobs": "jobs", "left": "MiB more", "wal": "WAL bytes/job", "dead": "dead rows at the end"}


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    worker = Table(["one worker process", *WORKER.values()], _rows(results, WORKER))
    servers = {key: runs for key, runs in results.items() if not key.startswith("memory ")}
    return [worker, Table(["what jobs that are gone leave", *STORE.values()], _rows(servers, STORE))]


def _rows(results: dict[str, list[dict[str, Any]]], columns: dict[str, str]) -> list[list[str]]:
    return [
        [f"{key.split()[0]}: {runs[0]['label']}", *(figure(runs, name) for name in columns)]
        for key, runs in results.items()
    ]
