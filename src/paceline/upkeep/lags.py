"""Says from time to time how late a worker's handlers begin, where anybody can look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from paceline.lifecycle.lags import Lags
from paceline.stores.interface import Store, WorkerRecord

log = logging.getLogger("paceline.worker")

EVERY = 10_000_000


async def report_forever(store: Store, lags: Lags, record: Callable[[], WorkerRecord]) -> None:
    """Every ten seconds on the store's clock, unless nothing began since."""
    never = asyncio.Event()
    while True:
        await store.clock.wait(never, store.clock.now() + EVERY)
        if lags.changed:
            try:
                await store.register(record())
            except Exception as error:
                log.info("the lags of a worker could not be reported: %s", error)
