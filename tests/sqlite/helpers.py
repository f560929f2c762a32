"""Small words for tests of files: other processes, other programs, workers in the background."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paceline
from paceline import Worker
from paceline.clock import Micros
from paceline.stores.interface import Ask

SECOND: Micros = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
PATIENCE = 15.0
"""Seconds after which something that should happen soon is taken not to happen: the machine may be busy."""


class Done:
    """A handler that writes down the data of every job it ran."""

    def __init__(self, takes: float = 0) -> None:
        self.data: list[Any] = []
        self.at: list[float] = []
        self._takes = takes

    async def __call__(self, job: Any) -> Any:
        self.at.append(time.monotonic())
        self.data.append(job.data)
        await asyncio.sleep(self._takes)
        return job.data


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    """Workers in the background; at the end what still runs is handed back."""
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await asyncio.wait_for(asyncio.gather(*(worker._listens.wait() for worker in workers)), PATIENCE)
        yield
        for run in runs:
            assert not run.done(), "a worker has stopped by itself"
    finally:
        await asyncio.wait_for(asyncio.gather(*(worker.stop(grace=0) for worker in workers)), PATIENCE)
        await asyncio.gather(*runs, return_exceptions=True)


async def eventually(true: Callable[[], object], within: float = PATIENCE) -> None:
    """Look again and again in real time."""
    deadline = time.monotonic() + within
    while True:
        found = true()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"did not happen within {within} s"
        await asyncio.sleep(0.005)


async def start(store: Any, slots: int = 1, *, queue: str = "line", lease: Micros = HOUR, **more: Any) -> list[Any]:
    """Claim as a worker does."""
    ask = Ask(queues=(queue,), slots=slots, worker=more.pop("worker", "worker"), lease=lease, **more)
    return (await store.claim(ask)).jobs


async def ask_again_at(store: Any, queue: str = "line") -> Micros:
    """When a claim that starts nothing is told to come again."""
    claim = await store.claim(Ask(queues=(queue,), slots=1, worker="asking", lease=HOUR))
    assert claim.jobs == []
    return claim.ask_again_at


class Process:
    """Python in another process, which says what it found on its output; ended at the end of the test."""

    def __init__(self, script: str, *args: object) -> None:
        source = os.pathsep.join([str(Path(paceline.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, args)],
            env={**os.environ, "PYTHONPATH": source},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    async def says(self) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        return (await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), PATIENCE)).strip()

    def tell(self, line: str = "") -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.wait(PATIENCE)

    async def ends(self) -> str:
        """All it said; it must have ended well."""
        said, _ = await asyncio.to_thread(self._process.communicate, None, PATIENCE)
        assert self._process.returncode == 0, said
        return said

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


async def run_python(script: str, *args: object) -> str:
    """What a script in another process says."""
    with Process(script, *args) as process:
        return await process.ends()
