"""Huey on SQLite: one consumer with threads, no results, nothing periodic, looking every millisecond.

With `fsync=False` (synchronous OFF), which favours it; its own default leaves SQLite's FULL (setting `default`). It
takes a job out of the file before it runs, so that a crash loses it and there is nothing to acknowledge. Its rate limit
is a fixed window whose refusals are scheduled anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from huey import SqliteHuey

from bench.adapters.interface import Adapter, Handle, Payload, Rate

POLL = 0.001
"""Seconds between two looks at an empty queue, for a low latency; its own default is 0.1, growing to 10."""


class System(Adapter):
    """The setting is the number of threads."""

    concurrent = False

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        threads, *default = setting.split("-")
        self.threads = int(threads)
        self.fsync = None if default else False
        self.label = (
            f"Huey, {threads} thread{'s' if threads != '1' else ''}, synchronous {'FULL' if default else 'OFF'}"
        )
        self.handle: Handle | None = None

    async def open(self) -> None:
        logging.getLogger("huey").setLevel(logging.CRITICAL)  # each refusal of its rate limit is logged as an error
        file = self.url.removeprefix("sqlite:///")
        self.huey: Any = SqliteHuey("bench", filename=file, results=False, fsync=self.fsync)

        def noop(payload: Payload) -> None:
            assert self.handle is not None
            self.handle(payload)

        limited: Any = noop
        if self.limit is not None:
            limited = self.huey.rate_limit("bench", self.limit.starts, round(self.limit.seconds))(noop)
        self.noop = self.huey.task()(limited)

    async def add(self, payload: Payload) -> None:
        self.noop(payload)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        self.handle = handle
        consumer = self.huey.create_consumer(
            workers=self.threads, worker_type="thread", periodic=False, initial_delay=POLL, max_delay=POLL
        )
        consumer.start()
        await stop.wait()
        await asyncio.to_thread(consumer.stop, graceful=True)

    async def close(self) -> None:
        self.huey.storage.close()
