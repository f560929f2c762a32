"""How many bytes a waiting job, a group and a key of a limit take: in the process, file, database or server."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

from bench.adapters.interface import PAYLOAD
from bench.cases import Case, Size
from bench.places import Place
from bench.report import Table, figure
from bench.systems import STORES
from paceline import Limit, Limiter, Queue, Rate, open_store

ROUNDS = 1
BULK = 1_000


def cases(size: Size) -> list[Case]:
    return [Case("size", store, "bytes", 1_000 if size.quick else 20_000) for store in STORES]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    """Jobs without a group, then as many with a group each, then a limit with a start in each group."""
    store = open_store(place.url)
    queue = Queue("bench", store=store, limits=[Limit("tenant", Rate(100, per="1h"), by="group")])
    await queue.counts()
    sizes = [_size(place)]
    await _add(queue, case.n, grouped=False)
    sizes.append(_size(place))
    await _add(queue, case.n, grouped=True)
    sizes.append(_size(place))
    limiter = Limiter("tenant", Rate(100, per="1h"), store=store)
    for number in range(case.n):
        await limiter.try_acquire(group=f"g{number}")
    sizes.append(_size(place))
    await store.close()
    job, grouped, key = ((after - before) / case.n for before, after in pairwise(sizes))
    return {"job": job, "group": grouped - job, "key": key}


async def _add(queue: Queue, jobs: int, *, grouped: bool) -> None:
    for first in range(0, jobs, BULK):
        numbers = range(first, min(first + BULK, jobs))
        await queue.add_many([("noop", PAYLOAD, {"group": f"g{n}"} if grouped else {}) for n in numbers])


def _size(place: Place) -> int:
    gc.collect()
    return place.size()


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["bytes", "a waiting job", "a group more", "a key of a rate, with one start"]
    rows = [
        [key.split()[0], *(figure(runs, name) for name in ("job", "group", "key"))] for key, runs in results.items()
    ]
    return [Table(head, rows)]
