"""Work that must come to its end although whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

TRIES = 3
"""So often work is begun anew when it is cancelled itself: a loop that ends cancels every task it has."""


async def insist(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do this to its end, then pass on a cancellation that came meanwhile. What is begun must bound its own time."""
    cancelled: asyncio.CancelledError | None = None
    for _ in range(TRIES):
        task = asyncio.ensure_future(work())
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.cancelled():
            task.result()
            break
    if cancelled is not None:
        raise cancelled


async def all_set(events: Sequence[asyncio.Event]) -> None:
    """Wait for every one of these."""
    for event in events:
        await event.wait()


async def end_task(background: asyncio.Task[None]) -> None:
    """Cancel and wait until it has ended."""
    background.cancel()
    await asyncio.wait([background])
