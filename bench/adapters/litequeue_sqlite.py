"""litequeue: it has no worker, so this is a bare loop of pop, run, done; its own settings (WAL, synchronous NORMAL)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litequeue import LiteQueue

from adapters.interface import PAYLOAD, AckStopwatch, Lap

POLL = 0.001
"""Seconds between two looks at an empty queue: it cannot wait for a job."""


class LitequeueSqlite:
    """One thread, one job at a time; done jobs stay in its file."""

    name = "litequeue"

    def __init__(self, file: Path) -> None:
        self.queue = LiteQueue(str(file))

    async def setup(self, jobs: int) -> None:
        self.watch = AckStopwatch(jobs)
        await self.add_all(PAYLOAD, jobs)

    async def drain(self) -> Lap:
        watch = self.watch
        while self._run_one(watch.run):
            watch.acknowledge()
        return watch.lap()

    async def add_singly(self, jobs: int) -> Lap:
        start = Lap.now()
        for _ in range(jobs):
            self.queue.put(json.dumps(PAYLOAD))
        lap = Lap.now().since(start)
        assert self.queue.qsize() == jobs, self.queue.qsize()
        return lap

    async def serve(self, handle: Callable[[Any], None], stop: threading.Event) -> None:
        while not stop.is_set():
            if not self._run_one(handle):
                time.sleep(POLL)

    async def add(self, payload: Any) -> None:
        self.queue.put(json.dumps(payload))

    async def add_all(self, payload: Any, jobs: int) -> None:
        text = json.dumps(payload)
        with self.queue.transaction():
            for _ in range(jobs):
                self.queue.put(text)

    async def starts(self) -> list[int]:
        return []

    async def close(self) -> None:
        self.queue.close()

    def _run_one(self, handle: Callable[[Any], None]) -> bool:
        message = self.queue.pop()
        if message is None:
            return False
        handle(json.loads(message.data))
        # Versions after 0.9 fence their acknowledgements.
        claim = {"claim_id": message.claim_id} if hasattr(message, "claim_id") else {}
        self.queue.done(message.message_id, **claim)
        return True
