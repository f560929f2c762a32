"""What only shows between processes: from an add to a start elsewhere, and how a limit is used by several workers."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from adapters.interface import PAYLOAD
from child import file_adapter

WORKER = Path(__file__).with_name("worker.py")
LIMIT = (100, 1)
"""Starts, and in how many seconds."""
SECOND = 1_000_000_000
WARM_UP = 20
SHORTEST_PAUSE, LONGEST_PAUSE = 0.010, 0.060
PATIENCE = 60.0
"""Seconds after which a job that did not start is lost."""


class Crew:
    """Worker processes on one file, and what they said."""

    def __init__(self) -> None:
        self.began: list[tuple[int, int]] = []
        """Of each job: when it was sent, when its handler began; nanoseconds of one clock."""
        self.cpu = 0.0
        self.processes: list[asyncio.subprocess.Process] = []
        self._listening: list[asyncio.Task[None]] = []
        self._more = asyncio.Event()

    async def start(self, count: int, *words: str) -> None:
        pipe = asyncio.subprocess.PIPE
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(sys.executable, str(WORKER), *words, stdin=pipe, stdout=pipe)
            self.processes.append(process)
        for process in self.processes:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            assert line == b"ready\n", line
            self._listening.append(asyncio.create_task(self._listen(process.stdout)))
        await asyncio.sleep(0.5)

    async def _listen(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            first, second = line.split()
            if first == b"cpu":
                self.cpu += float(second)
            else:
                self.began.append((int(first), int(second)))
                self._more.set()

    async def wait_for(self, jobs: int) -> None:
        """Until so many handlers have begun."""
        async with asyncio.timeout(PATIENCE):
            while len(self.began) < jobs:
                self._more.clear()
                await self._more.wait()

    async def stop(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.wait_for(asyncio.gather(*(process.wait() for process in self.processes)), PATIENCE)
        await asyncio.gather(*self._listening)


@asynccontextmanager
async def crew_on(file: Path, system: str, count: int, limit: tuple[int, int] | None) -> AsyncIterator[Crew]:
    crew = Crew()
    try:
        await crew.start(count, system, str(file), *(str(number) for number in limit or ()))
        yield crew
        await crew.stop()
    finally:
        for process in crew.processes:
            if process.returncode is None:
                process.kill()


async def latency(system: str, samples: int) -> dict[str, Any]:
    """From just before an add to the handler's first line in another process, on an idle queue, in milliseconds."""
    pauses = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        file = Path(folder) / "jobs.db"
        adapter = file_adapter(system, file)
        await adapter.add(_sent())  # the file is there before the worker comes
        async with crew_on(file, system, 1, None) as crew:
            await crew.wait_for(1)
            start = time.perf_counter()
            for number in range(2, samples + WARM_UP + 1):
                await asyncio.sleep(pauses.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
                await adapter.add(_sent())
                await crew.wait_for(number)
            took = time.perf_counter() - start
        await adapter.close()
    late = [(began - sent) / 1e6 for sent, began in sorted(crew.began)[WARM_UP:]]
    assert len(late) == samples, len(late)
    return {
        "name": adapter.name,
        "n": samples,
        "p50": median(late),
        "p99": quantiles(late, n=100)[98],
        "max": max(late),
        "busy": crew.cpu / took,
    }


async def use(system: str, processes: int, jobs: int) -> dict[str, Any]:
    """Jobs that are all there, under one limit, with workers in so many processes.

    Share and lateness are by the stamps of the system itself where it keeps any, else by those of the handlers.
    """
    most, seconds = LIMIT
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        file = Path(folder) / "jobs.db"
        adapter: Any = file_adapter(system, file, LIMIT)
        await adapter.add(_sent())
        async with crew_on(file, system, processes, LIMIT) as crew:
            await crew.wait_for(1)
            await asyncio.sleep(seconds + 0.1)  # that one counts no more
            begin = time.monotonic_ns()
            await adapter.add_all(_sent(), jobs)
            await crew.wait_for(jobs + 1)
        starts = await adapter.starts()
        await adapter.close()
    began = sorted(at for _, at in crew.began if at >= begin)
    assert len(began) == jobs, len(began)
    # The first job, which came before all others, counts no more.
    at = [stamp * 1_000 for stamp in sorted(starts)[1:]] or began
    late = [(stamp - at[0]) / 1e6 - n // most * seconds * 1e3 for n, stamp in enumerate(at)]
    return {
        "name": f"{adapter.name}, {processes} process{'es' if processes > 1 else ''}",
        "n": jobs,
        "seconds": (at[-1] - at[0]) / SECOND,
        "share": (jobs - 1) // most * seconds * SECOND / (at[-1] - at[0]),
        "worst_stamped": worst_window(starts, seconds * 1_000_000) if starts else None,
        "worst_begun": worst_window(began, seconds * SECOND),
        "late_mean": mean(late),
        "late_p99": quantiles(late, n=100)[98],
        "cpu": crew.cpu,
    }


def worst_window(stamps: Sequence[int], length: int) -> int:
    """The most stamps in any window of this length; half-open: one that is exactly `length` old counts no more."""
    ordered = sorted(stamps)
    return max(bisect_left(ordered, at + length) - place for place, at in enumerate(ordered))


def _sent() -> dict[str, Any]:
    return PAYLOAD | {"sent": time.monotonic_ns()}
