"""Worker processes on one store, and what they said."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.adapters.interface import Rate

ROOT = Path(__file__).parents[1]
PATIENCE = 90.0
"""Seconds after which a job that did not start is lost."""
SETTLING = 0.5
"""Seconds a worker may take from its first word to its first look at the store."""


class Crew:
    def __init__(self) -> None:
        self.began: list[tuple[int, int]] = []
        """Of each job: when it was sent, when its handler began; nanoseconds of one clock. Only if each is told."""
        self.tallies: list[tuple[int, int, int]] = []
        """Of each process: when the first handler began, when the last, how many. At the end, if tallies are told."""
        self.cpu = 0.0
        self.stalls = (0.0, 0.0)
        """The longest delay of its event loop, in milliseconds, and the most processor time in one; if watched."""
        self.processes: list[asyncio.subprocess.Process] = []
        self._counts: dict[int, int] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._more = asyncio.Event()

    async def start(self, count: int, *words: str) -> None:
        pipe = asyncio.subprocess.PIPE
        program = (sys.executable, "-m", "bench.worker")
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(*program, *words, cwd=ROOT, stdin=pipe, stdout=pipe)
            self.processes.append(process)
        for process in self.processes:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            assert line == b"ready\n", line
            self._listening.append(asyncio.create_task(self._listen(process.pid, process.stdout)))
        await asyncio.sleep(SETTLING)

    async def _listen(self, process: int, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            word, *numbers = line.decode().split()
            if word == "cpu":
                self.cpu += float(numbers[0])
            elif word == "stalls":
                self.stalls = (float(numbers[0]), float(numbers[1]))
            elif word == "count":
                self._counts[process] = int(numbers[0])
            elif word == "tally":
                self.tallies.append((int(numbers[0]), int(numbers[1]), int(numbers[2])))
            else:
                self.began.append((int(numbers[0]), int(numbers[1])))
            self._more.set()

    async def wait_for(self, jobs: int) -> None:
        """Until so many handlers have begun."""
        async with asyncio.timeout(PATIENCE):
            while len(self.began) + sum(self._counts.values()) < jobs:
                self._more.clear()
                await self._more.wait()

    async def stop(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.wait_for(asyncio.gather(*(process.wait() for process in self.processes)), PATIENCE)
        await asyncio.gather(*self._listening)


@asynccontextmanager
async def crew_on(url: str, spec: str, count: int, limit: Rate | None = None, how: str = "each") -> AsyncIterator[Crew]:
    """So many processes, all ready; `how`: tell of `each` job, keep a `tally`, or be `watched`."""
    crew = Crew()
    try:
        await crew.start(count, spec, url, how, *(str(number) for number in limit or ()))
        yield crew
        await crew.stop()
    finally:
        for process in crew.processes:
            if process.returncode is None:
                process.kill()
