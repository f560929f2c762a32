"""The pipes between a supervisor and its worker processes: a child says how it is, and notices when nobody listens."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import msgspec

from paceline.cli.health import State

EVERY = 1.0
"""Seconds between two reports."""
VARIABLE = "PACELINE_INTERNAL_PIPES"
_PIPES = os.environ.pop(VARIABLE, None)  # taken, so that what a handler starts is no child of the supervisor


class Reports:
    """A child's end: reports go out, and the end of the other pipe means that the supervisor is gone."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._task: asyncio.Task[None] | None = None

    @staticmethod
    def is_child() -> bool:
        """True in a process that a supervisor started."""
        return _PIPES is not None

    def begin(self, ready: State) -> None:
        """Report from now on."""
        if _PIPES is None:
            return
        out, alive = (int(number) for number in _PIPES.split(","))
        loop = asyncio.get_running_loop()

        def wait_for_the_end() -> None:
            os.read(alive, 1)  # returns when the supervisor is gone, however it went
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._stop)

        threading.Thread(target=wait_for_the_end, name="paceline-supervisor", daemon=True).start()
        self._task = loop.create_task(_report(out, ready))

    def end(self) -> None:
        """Report no more."""
        if self._task is not None:
            self._task.cancel()


async def _report(out: int, ready: State) -> None:
    while True:
        good, facts = await ready()
        try:
            os.write(out, msgspec.json.encode({"ready": good, **facts}) + b"\n")
        except OSError:
            return
        await asyncio.sleep(EVERY)
