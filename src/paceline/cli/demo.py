"""`paceline demo`: webhooks of three tenants to a service with a quota, once without and once with limits."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from tempfile import TemporaryDirectory
from typing import TypeAlias

import click

from paceline import App, Concurrency, Job, PacelineError, Queue, Rate, RateLimited, Store, Worker, open_store
from paceline.options import JobOptions

QUOTA, WINDOW = 20, 1.0
TENANTS = {"big": 0.7, "small": 0.2, "tiny": 0.1}


class Service:
    """A service that answers 429 when more than its quota arrives in any second."""

    def __init__(self) -> None:
        self.accepted: deque[float] = deque()
        self.refusals = 0
        self.delivered: dict[str, list[float]] = {name: [] for name in TENANTS}
        self.began = time.monotonic()

    async def post(self, tenant: str) -> int:
        now = time.monotonic()
        while self.accepted and self.accepted[0] <= now - WINDOW:
            self.accepted.popleft()
        if len(self.accepted) >= QUOTA:
            self.refusals += 1
            return 429
        self.accepted.append(now)
        await asyncio.sleep(0.02)
        self.delivered[tenant].append(now - self.began)
        return 200


Run: TypeAlias = tuple[Service, dict[str, int], float]
"""What the service saw, how the jobs ended, and how long it took."""


class TooManyRequests(Exception):
    """What a client library raises on a 429."""


@click.command()
@click.option("--jobs", default=100, show_default=True, help="How many webhooks to send.")
@click.option("--store", "url", help="Where the jobs live; by default in a SQLite file that goes afterwards.")
def demo(jobs: int, url: str | None) -> None:
    """Send webhooks to a service that allows 20 a second: first as fast as possible, then with limits."""
    if jobs < 1:
        raise click.BadParameter(f"{jobs} is wrong: expected at least 1", param_hint="--jobs")
    with TemporaryDirectory() as folder:
        storm, paced = asyncio.run(_both(jobs, url or f"sqlite:///{folder}/demo.db"))
    _compare(jobs, storm, paced)


async def _both(jobs: int, url: str) -> tuple[Run, Run]:
    try:
        store = open_store(url, namespace=f"demo-{os.getpid()}")
        try:
            await store.open()
            return await _without_limits(jobs, store), await _with_limits(jobs, store)
        finally:
            for name in ("storm", "paced"):
                await store.obliterate(name, True)
            await store.close()
    except PacelineError as error:
        raise click.ClickException(str(error)) from error


async def _without_limits(jobs: int, store: Store) -> Run:
    service = Service()
    queue = Queue("storm", store=store)

    async def deliver(job: Job[None]) -> None:
        if await service.post(job.group or "") == 429:
            raise TooManyRequests("429 Too Many Requests")

    await queue.add_many(_webhooks(jobs))
    worker = Worker("storm", deliver, store=store, concurrency=20)
    took = await _watch("without limits", queue, worker, jobs)
    return service, await queue.counts(), took


async def _with_limits(jobs: int, store: Store) -> Run:
    service = Service()
    app = App(store)
    # The guard is for a service that counts arrivals: a request may travel a few milliseconds.
    app.limit("service", Rate(QUOTA, per=WINDOW, guard="20ms") & Concurrency(10), queues=["paced"])
    queue = app.queue("paced")

    async def deliver(job: Job[None]) -> None:
        if await service.post(job.group or "") == 429:
            raise RateLimited(limit="service")

    await queue.add_many(_webhooks(jobs))
    worker = Worker("paced", deliver, store=store, concurrency=20)
    took = await _watch("with limits", queue, worker, jobs)
    return service, await queue.counts(), took


def _webhooks(jobs: int) -> list[tuple[str, None, JobOptions]]:
    """The big tenant's jobs come first: whoever is served in order of arrival lets the others wait."""
    names = [name for name, share in TENANTS.items() for _ in range(round(jobs * share))]
    names = (names + ["big"] * jobs)[:jobs]
    return [("deliver", None, {"group": name, "attempts": 3, "retry_delay": "300ms"}) for name in names]


async def _watch(title: str, queue: Queue, worker: Worker, jobs: int) -> float:
    began = time.monotonic()
    running = asyncio.create_task(worker.run(until_empty=True))
    while not running.done():
        _draw(title, await queue.counts(), jobs, time.monotonic() - began, end="\r")
        await asyncio.wait([running], timeout=0.1)
    await running
    took = time.monotonic() - began
    _draw(title, await queue.counts(), jobs, took, end="\n")
    return took


def _draw(title: str, counts: dict[str, int], jobs: int, seconds: float, *, end: str) -> None:
    if end == "\r" and not sys.stdout.isatty():
        return
    done, failed = counts["completed"], counts["failed"]
    full = round(30 * done / jobs)
    lost = round(30 * failed / jobs)
    bar = "█" * full + "×" * lost + "·" * (30 - full - lost)
    click.echo(f"{title:>15} {bar} {done}/{jobs} delivered, {failed} failed, {seconds:4.1f} s ", nl=False)
    click.echo(end, nl=False)


def _compare(jobs: int, storm: Run, paced: Run) -> None:
    click.echo()
    click.echo(f"{'':>15} {'429s':>6} {'failed':>7} {'delivered':>10} {'seconds':>8}   first of the tiny tenant after")
    for title, (service, counts, took) in (("without limits", storm), ("with limits", paced)):
        tiny = min(service.delivered["tiny"], default=None)
        first = "never" if tiny is None else f"{tiny:.2f} s"
        row = (
            f"{title:>15} {service.refusals:>6} {counts['failed']:>7} {counts['completed']:>10} {took:>8.1f}   {first}"
        )
        click.echo(row)
    saved = storm[1]["failed"]
    click.echo()
    click.echo(
        f"{jobs} webhooks, {QUOTA} allowed per second: limits saved {saved} of them and {storm[0].refusals} refusals."
    )
