"""How fast jobs get in and through: single adds, from 50 tasks, in bulk, and a drain of no-op jobs by one worker."""

from __future__ import annotations

from typing import Any

from bench.adapters.interface import PAYLOAD, Adapter, Lap
from bench.cases import Case, Size
from bench.collector import settle
from bench.places import Place
from bench.report import Table, figure, spread_of
from bench.systems import PEERS, STORES, adapter

TASKS = 50
BULK = 1_000
SINGLES = 2_000
"""At most so many are added one by one."""
JOBS = {"memory": 20_000, "sqlite": 10_000, "postgres": 10_000, "redis": 20_000}
OURS = {
    "memory": ("plain", "limit", "groups", "tenants"),
    "sqlite": ("plain", "limit", "groups", "tenants", "kept", "plain,durability=full", "limit,durability=full"),
    "postgres": ("plain", "limit", "groups", "tenants", "kept", "plain,slots=100"),
    "redis": ("plain", "limit", "groups", "tenants", "kept"),
}
QUICK = ("plain", "limit")


def cases(size: Size) -> list[Case]:
    """Ours and every setting of the peers of a store in turn, so that all meet the same moments of the machine."""
    found = []
    for store in STORES:
        jobs = JOBS[store] // (2 if size.quick else 1)
        found += [Case("speed", store, f"ours:{shape}", jobs) for shape in (QUICK if size.quick else OURS[store])]
        for peer in PEERS:
            if peer.store == store and peer not in size.absent:
                settings = peer.settings[:1] if size.quick else peer.settings
                some = max(500, int(jobs * peer.share))
                found += [Case("speed", store, f"{peer.system}:{setting}", some) for setting in settings]
    return found


async def measure(place: Place, case: Case) -> dict[str, Any]:
    system = adapter(case.spec, place.url)
    await system.open()
    rates = await _fill(system, case.n)
    settle()
    server = place.cpu()
    lap = await system.drain(case.n)
    server = place.cpu() - server
    await system.close()
    return {
        "label": system.label,
        "jobs": case.n,
        **rates,
        "drain": case.n / lap.seconds,
        "cpu_us": lap.cpu / case.n * 1e6,
        "server_us": server / case.n * 1e6,
    }


async def _fill(system: Adapter, jobs: int) -> dict[str, float]:
    """Add exactly so many jobs, in all ways there are; returns jobs per second of each."""
    singles = min(SINGLES, jobs // 4)
    start = Lap.now()
    await system.add_one_by_one(PAYLOAD, singles)
    rates = {"single": singles / Lap.now().since(start).seconds}
    left = jobs - singles
    if system.concurrent:
        some = singles // TASKS * TASKS
        start = Lap.now()
        await system.add_together(PAYLOAD, some, TASKS)
        rates["together"] = some / Lap.now().since(start).seconds
        left -= some
    if not system.bulk:
        await system.add_one_by_one(PAYLOAD, left)
        return rates
    start = Lap.now()
    for first in range(0, left, BULK):
        await system.add_many(PAYLOAD, min(BULK, left - first))
    rates["bulk"] = left / Lap.now().since(start).seconds
    return rates


COLUMNS = {"drain": "drain", "single": "one by one", "together": "from 50 tasks", "bulk": "in bulk"}


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    found = []
    for store in STORES:
        rows = [
            [
                runs[0]["label"],
                *(figure(runs, column) for column in COLUMNS),
                spread_of(runs, "drain"),
                *(figure(runs, column) for column in ("cpu_us", "server_us")),
            ]
            for key, runs in results.items()
            if key.startswith(f"{store} ")
        ]
        head = [f"{store}: jobs/s", *COLUMNS.values(), "spread", "µs/job", "of the server"]
        if rows:
            found.append(Table(head, rows))
    return found
