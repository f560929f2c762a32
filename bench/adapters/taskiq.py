"""taskiq with its Redis stream broker: one receiver in the loop, no results."""

from __future__ import annotations

import asyncio

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.adapters.interface import Adapter, Handle, Payload, Rate


class System(Adapter):
    """The setting is the number of tasks at a time."""

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.label = f"taskiq, streams, {setting} tasks"
        self.handle: Handle | None = None

    async def open(self) -> None:
        self.broker = RedisStreamBroker(url=self.url)

        async def noop(payload: dict) -> None:  # type: ignore[type-arg]
            assert self.handle is not None
            self.handle(payload)

        self.noop = self.broker.task(task_name="noop")(noop)
        await self.broker.startup()

    async def add(self, payload: Payload) -> None:
        await self.noop.kiq(payload)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        self.handle = handle
        self.broker.is_worker_process = True
        receiver = run_receiver_task(self.broker, max_async_tasks=int(self.setting), run_startup=False)
        running = asyncio.create_task(receiver)
        await stop.wait()
        running.cancel()
        # It waits for its next message and does not let go by itself.
        await asyncio.wait([running], timeout=1)
