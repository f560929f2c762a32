"""Celery: a worker in a thread, with the pool that is fastest for no-ops; no results, no events, no gossip."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

from celery import Celery

from adapters.interface import Lap, Stopwatch
from adapters.redis_server import Server


class CeleryRedis:
    def __init__(self, concurrency: int) -> None:
        self.name = "Celery, solo" if concurrency == 1 else f"Celery, {concurrency} threads"
        self.concurrency = concurrency

    async def setup(self, jobs: int) -> dict[str, float]:
        self.server = Server()
        self.watch = watch = Stopwatch(jobs)
        loop = asyncio.get_running_loop()
        self.app = Celery("bench", broker=self.server.url)
        self.app.conf.update(
            task_ignore_result=True, worker_prefetch_multiplier=16, worker_hijack_root_logger=False, result_backend=None
        )

        @self.app.task(name="noop")
        def noop() -> None:
            watch.tick_from_thread(loop)

        start = time.perf_counter()
        for _ in range(jobs):
            noop.delay()
        return {"adds": jobs / (time.perf_counter() - start)}

    async def drain(self) -> Lap:
        logging.disable(logging.WARNING)
        pool = "solo" if self.concurrency == 1 else "threads"
        worker: Any = self.app.WorkController(
            pool_cls=pool,
            concurrency=self.concurrency,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        thread = threading.Thread(target=worker.start, daemon=True)
        thread.start()
        await self.watch.done.wait()
        lap = self.watch.lap()
        worker.should_stop = 0
        self.server.close()
        return lap
