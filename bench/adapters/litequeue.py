"""litequeue on SQLite: it has no worker, so this is a bare loop of pop, run, done in a thread.

Its own settings (WAL, synchronous NORMAL); done jobs stay in its file. It cannot wait for a job: it looks every
millisecond. Versions after 0.9 need Python 3.12, and 0.9 sorts all waiting jobs at each pop, so it is left out there.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time

from litequeue import LiteQueue

from bench.adapters.interface import Adapter, Handle, Payload, Rate

POLL = 0.001


class System(Adapter):
    """One thread, one job at a time."""

    concurrent = False
    label = "litequeue"

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.file = url.removeprefix("sqlite:///")

    async def open(self) -> None:
        self.queue = LiteQueue(self.file)

    async def add(self, payload: Payload) -> None:
        self.queue.put(json.dumps(payload))

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        over = threading.Event()
        working = asyncio.create_task(asyncio.to_thread(self._loop, handle, over))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        over.set()
        await working

    def _loop(self, handle: Handle, over: threading.Event) -> None:
        queue = LiteQueue(self.file)
        while not over.is_set():
            message = queue.pop()
            if message is None:
                time.sleep(POLL)
                continue
            handle(json.loads(message.data))
            queue.done(message.message_id, claim_id=message.claim_id)
        queue.close()

    async def close(self) -> None:
        self.queue.close()
