"""Celery on Redis: a worker in a thread, with the pools that are fastest for no-ops; no results, events or gossip."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from celery import Celery

from bench.adapters.interface import Adapter, Handle, Payload, Rate


class System(Adapter):
    """The setting is the number of threads; 1 is the pool `solo`."""

    concurrent = False

    def __init__(self, url: str, setting: str, limit: Rate | None = None) -> None:
        super().__init__(url, setting, limit)
        self.label = "Celery, solo" if setting == "1" else f"Celery, {setting} threads"
        self.handle: Handle | None = None

    async def open(self) -> None:
        self.app = Celery("bench", broker=self.url)
        self.app.conf.update(
            task_ignore_result=True, worker_prefetch_multiplier=16, worker_hijack_root_logger=False, result_backend=None
        )

        def noop(payload: Payload) -> None:
            assert self.handle is not None
            self.handle(payload)

        self.noop: Any = self.app.task(noop, name="noop")

    async def add(self, payload: Payload) -> None:
        self.noop.delay(payload)

    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        self.handle = handle
        logging.disable(logging.WARNING)
        worker: Any = self.app.WorkController(
            pool_cls="solo" if self.setting == "1" else "threads",
            concurrency=int(self.setting),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        threading.Thread(target=worker.start, daemon=True).start()
        await stop.wait()
        worker.should_stop = 0
