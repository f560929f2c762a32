"""Somebody else: another process, or another thread where a store lives in one process only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from paceline.stores.interface import Store

from .elsewhere import Deeds, do

PROGRAM = Path(__file__).with_name("elsewhere.py")
PATIENCE = 30.0
"""Seconds after which somebody who does not answer is taken not to."""


class Other(Protocol):
    """Whoever acts on the store of a test without sharing anything with it."""

    async def does(self, deed: str, **words: Any) -> float:
        """Let it do one thing; gives the instant at which it began."""
        ...


class Process:
    """A process that serves one store after the other: starting one takes longer than most tests."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **order: Any) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def kill(self) -> None:
        """End it as a crash does; the next deed is done by a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


class OtherProcess:
    """What a process does on one store."""

    def __init__(self, process: Process, url: str, namespace: str) -> None:
        self._process = process
        self._where = {"url": url, "namespace": namespace}

    async def does(self, deed: str, **words: Any) -> float:
        order = {**self._where, "deed": deed, "with": words}
        answer = await asyncio.wait_for(asyncio.to_thread(lambda: self._process.ask(**order)), PATIENCE)
        assert "error" not in answer, answer["error"]
        return float(answer["began"])


class OtherThread:
    """What a thread with an event loop of its own does on a store that it shares."""

    def __init__(self, store: Store) -> None:
        self._deeds = Deeds(store)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def does(self, deed: str, **words: Any) -> float:
        done: Future[float] = asyncio.run_coroutine_threadsafe(do(self._deeds, deed, words), self._loop)
        return await asyncio.wait_for(asyncio.wrap_future(done), PATIENCE)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
