"""One worker process of the races: `python race_worker.py URL HOURS [NOTES]`, with a clock wrong by so many hours.

Each handler notes in the file NOTES which start it belongs to.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

right_time, right_time_ns = time.time, time.time_ns
HOURS = float(sys.argv[2])
time.time = lambda: right_time() + HOURS * 3600
time.time_ns = lambda: right_time_ns() + int(HOURS * 3600 * 10**9)

from paceline import Job, Worker  # noqa: E402 - the clock is wrong before anything looks at it
from paceline.stores import open_store  # noqa: E402


async def main() -> None:
    notes = os.open(sys.argv[3] if len(sys.argv) > 3 else os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handler(job: Job[Any]) -> None:
        os.write(notes, f"{job.id} {job.record.started_at} {job.task} {job.group or ''}\n".encode())
        await asyncio.sleep(0.005)

    store = open_store(sys.argv[1])
    worker = Worker("line", handler, store=store, concurrency=10, lease="2s")
    print("ready", flush=True)
    await worker.run()


asyncio.run(main())
