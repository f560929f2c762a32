"""Limiters without jobs: how many questions a second they answer, and whether they keep what they promise.

In memory they are timed by processor time, because nothing is waited for.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from importlib import import_module
from typing import Any

from bench.cases import Case, Size
from bench.collector import settle
from bench.limiters.interface import Ask, LimiterAdapter
from bench.places import Place
from bench.report import Table, figure, spread_of

WINDOW = 1_000
"""Starts of every limit, so that windows fill and slide alike."""
HOUR = 3_600
SECOND = 1_000_000_000
WATCHED = 2.2
"""Seconds in which a limit of 100 a second is asked without a pause."""
SPECS = {
    "memory": (
        "ours",
        "limits:moving",
        "limits:fixed",
        "pyrate",
        "throttled:gcra",
        "throttled:sliding_window",
        "aiolimiter",
    ),
    "sqlite": ("ours",),
    "postgres": ("ours",),
    "redis": ("ours", "limits:moving", "limits:fixed", "pyrate", "throttled:gcra", "throttled:sliding_window"),
}
QUICK = ("ours", "limits:moving")
QUESTIONS = {"memory": 50_000, "sqlite": 4_000, "postgres": 2_000, "redis": 10_000}


def cases(size: Size) -> list[Case]:
    stores = ("memory",) if size.quick else SPECS
    return [
        Case("limiters", store, spec, max(QUESTIONS[store] // (5 if size.quick else 1) // WINDOW, 1) * WINDOW)
        for store in stores
        for spec in SPECS[store]
        if not size.quick or spec in QUICK
    ]


async def measure(place: Place, case: Case) -> dict[str, Any]:
    system, _, strategy = case.spec.partition(":")
    limiter: LimiterAdapter = import_module(f"bench.limiters.{system}").System(place.url, strategy)
    await limiter.open()
    settle()
    found = {
        "label": limiter.label,
        "granted": await _granted(limiter, case.n),
        "sliding": await _sliding(limiter, min(case.n, 20_000)),
        "refused": await _refused(limiter, case.n),
        "worst": await _worst(limiter),
    }
    await limiter.close()
    return found


async def _granted(limiter: LimiterAdapter, n: int) -> float:
    """Windows of an hour that fill from empty to full, one after the other."""
    took = 0.0
    for number in range(n // WINDOW):
        ask = await limiter.empty(f"granted-{number}", WINDOW, HOUR)
        took += await _ask(limiter, ask, WINDOW, WINDOW)
        await limiter.forget(f"granted-{number}", WINDOW, HOUR)
    return n / took


async def _sliding(limiter: LimiterAdapter, n: int) -> float:
    """Windows of a second that were full a second ago, so that each grant replaces an old one."""
    asks = [await limiter.empty(f"sliding-{number}", WINDOW, 1) for number in range(n // WINDOW)]
    for ask in asks:
        await _ask(limiter, ask, WINDOW, None)
    await asyncio.sleep(1.1)
    took = 0.0
    for ask in asks:
        took += await _ask(limiter, ask, WINDOW, WINDOW)
    return n / took


async def _refused(limiter: LimiterAdapter, n: int) -> float:
    """A window that is full."""
    ask = await limiter.empty("refused", WINDOW, HOUR)
    await _ask(limiter, ask, WINDOW, WINDOW)
    return n / await _ask(limiter, ask, n, 0)


async def _ask(limiter: LimiterAdapter, ask: Ask, times: int, expected: int | None) -> float:
    """Ask so many times; how long it took. A leaky bucket may grant a little more meanwhile."""
    granted = 0
    now = time.thread_time if limiter.url == "memory://" else time.perf_counter
    start = now()
    if limiter.asynchronous:
        for _ in range(times):
            if await ask():
                granted += 1
    else:
        for _ in range(times):
            if ask():
                granted += 1
    took = now() - start
    assert expected is None or abs(granted - expected) <= times // 50, (granted, expected)
    return took


async def _worst(limiter: LimiterAdapter) -> int:
    """The most grants that were certainly in one second, under a limit of 100 a second: from before the first question
    to behind the last answer, because only the library knows the instant between."""
    ask = await limiter.empty("worst", 100, 1)
    asked: list[int] = []
    answered: list[int] = []
    end = time.monotonic_ns() + round(WATCHED * SECOND)
    while (now := time.monotonic_ns()) < end:
        granted = await ask() if limiter.asynchronous else ask()
        if granted:
            asked.append(now)
            answered.append(time.monotonic_ns())
    return max(bisect_left(answered, first + SECOND) - place for place, first in enumerate(asked))


def tables(results: dict[str, list[dict[str, Any]]]) -> list[Table]:
    head = ["limiters: questions/s", "granted", "sliding", "refused", "spread", "worst second of 100"]
    rows = [
        [
            f"{key.split()[0]}: {runs[0]['label']}",
            *(figure(runs, name) for name in ("granted", "sliding", "refused")),
            spread_of(runs, "granted"),
            str(max(run["worst"] for run in runs)),
        ]
        for key, runs in results.items()
    ]
    return [Table(head, rows)]
