"""Removes finished jobs after their `keep`, and what idle groups and limits left behind."""

from __future__ import annotations

import asyncio
import logging

from paceline.stores.interface import Store

log = logging.getLogger("paceline.worker")

EVERY = 60_000_000


async def prune_forever(store: Store) -> None:
    """Prune once a minute on the store's clock; an error is logged and the next minute tries again."""
    never = asyncio.Event()
    while True:
        await store.clock.wait(never, store.clock.now() + EVERY)
        try:
            await store.prune()
        except Exception as error:
            log.warning("pruning failed: %s", error)
