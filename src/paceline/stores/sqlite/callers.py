"""Who asks for a step and waits for its answer: gathered into batches, and answered loop by loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

log = logging.getLogger("paceline.sqlite")

TOGETHER = 256
"""So many steps share one transaction at most."""


class Step:
    """One step to do, and whom to answer."""

    __slots__ = ("args", "call", "error", "future", "loop", "quick", "result", "writes")

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...], writes: bool, quick: bool = False) -> None:
        self.call = call
        self.args = args
        self.writes = writes
        self.quick = quick
        self.result: Any = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None


def gathered(steps: SimpleQueue[list[Step]]) -> list[Step]:
    """Everything that is asked for by now; nothing when it is time to end."""
    batch = steps.get()
    return batch + waiting(steps, TOGETHER - len(batch)) if batch else batch


def waiting(steps: SimpleQueue[list[Step]], most: int) -> list[Step]:
    """What else is asked for by now, about so much."""
    found: list[Step] = []
    with contextlib.suppress(Empty):
        while len(found) < most:
            more = steps.get_nowait()
            if not more:
                # First what was asked for, then the end.
                steps.put([])
                break
            found += more
    return found


def answer(batch: list[Step]) -> None:
    """Tell each event loop once, whatever the number of its callers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Step]] = {}
    for step in batch:
        if step.loop is not None:
            by_loop.setdefault(step.loop, []).append(step)
        elif step.error is not None:
            log.warning("%s", step.error)
    for loop, steps in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(resolve, steps)


def resolve(steps: list[Step]) -> None:
    """Give each caller of this event loop its answer."""
    for step in steps:
        future = step.future
        if future is None or future.done():
            continue
        if step.error is not None:
            future.set_exception(step.error)
        else:
            future.set_result(step.result)
