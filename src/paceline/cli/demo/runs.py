"""The two runs: as fast as possible, and with limits declared. What differs is all there is to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from paceline.app import App
from paceline.cli.demo.service import Arrival, RunningService
from paceline.limits import Concurrency, Rate
from paceline.limits.explain import Usage
from paceline.options import Exponential
from paceline.stores.interface import Store
from paceline.verdicts import RateLimited

TENANTS = {"big": 0.7, "middle": 0.15, "small": 0.1, "tiny": 0.05}
"""The tenants and their share of the webhooks; the big one's come first."""
ATTEMPTS = 4
SLOTS = 50
EVERY = 0.1
"""Seconds between two looks at how far a run is."""


@dataclass(slots=True)
class Progress:
    """How far a run is."""

    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    """Until the last answer came."""
    over: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    refused: int = 0
    wanted: dict[str, int] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    limits: dict[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended: what the jobs became, and what the service saw."""

    progress: Progress
    arrivals: list[Arrival]


Show = Callable[[Progress], None]
Run = Callable[[Store, int, int, float, Show], Awaitable[Result]]


def tenants(jobs: int) -> list[str]:
    """Whose webhook each job is: the big tenant's come first, as they do."""
    names = [name for name, share in TENANTS.items() for _ in range(max(round(jobs * share), 1))]
    return (["big"] * jobs + names)[-jobs:] if len(names) < jobs else names[-jobs:]


class TooManyRequests(Exception):
    """What an HTTP client raises on a 429."""


async def storm(store: Store, jobs: int, most: int, per: float, show: Show) -> Result:
    """As people begin: no limits, and what fails is tried again a little later."""
    service, progress = RunningService(most, per), Progress()
    app = App(store)

    @app.task(attempts=ATTEMPTS, retry_delay=Exponential("1s"))
    async def deliver(tenant: str) -> None:
        progress.requests += 1
        status, _ = await service.post(tenant)
        progress.seconds = time.monotonic() - progress.began
        if status == 429:
            progress.refused += 1
            raise TooManyRequests("429 Too Many Requests")
        progress.delivered[tenant] = progress.delivered.get(tenant, 0) + 1

    names = tenants(jobs)
    await deliver.enqueue_many([(name,) for name in names])
    return await _run(app, service, progress, names, show)


async def paced(store: Store, jobs: int, most: int, per: float, show: Show) -> Result:
    """With the quota declared once, for all workers, and a group for each tenant."""
    service, progress = RunningService(most, per), Progress()
    app = App(store)
    app.limit("service", Rate(most, per=per), tasks=["deliver"])
    app.limit("tenant", Concurrency(40), by="group")

    @app.task(attempts=ATTEMPTS, retry_delay=Exponential("1s"))
    async def deliver(tenant: str) -> None:
        progress.requests += 1
        status, headers = await service.post(tenant)
        progress.seconds = time.monotonic() - progress.began
        if status == 429:
            progress.refused += 1
            raise RateLimited.from_response(status, headers)
        progress.delivered[tenant] = progress.delivered.get(tenant, 0) + 1

    names = tenants(jobs)
    for name in TENANTS:
        await deliver.using(group=name).enqueue_many([(each,) for each in names if each == name])

    async def limits() -> dict[str, Usage]:
        return {"service": await store.usage("service", None)}

    return await _run(app, service, progress, names, show, limits)


async def _run(
    app: App,
    service: RunningService,
    progress: Progress,
    names: list[str],
    show: Show,
    limits: Callable[[], Awaitable[dict[str, Usage]]] | None = None,
) -> Result:
    queue, worker = app.queue(), app.worker(concurrency=SLOTS)
    progress.wanted = {name: names.count(name) for name in TENANTS}
    progress.began = time.monotonic()
    running = asyncio.create_task(worker.run(until_empty=True))

    async def look() -> None:
        progress.counts = await queue.counts()
        if limits is not None:
            progress.limits = await limits()
        show(progress)

    try:
        while not running.done():
            await look()
            await asyncio.wait([running], timeout=EVERY)
        await running
        await look()
        progress.over = True
        arrivals = await service.log()
    finally:
        if not running.done():
            await worker.stop(0)
        service.end()
    return Result(progress, arrivals)
