"""What signals do to a worker: stop, stop at once, quit; be quiet; show where it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import traceback
from types import FrameType

from paceline.cli.running import CRASHED
from paceline.durations import Duration
from paceline.worker import Worker

log = logging.getLogger("paceline.cli")


class Signals:
    """SIGTERM and SIGINT: the first stops gracefully, the second cancels, the third ends the process."""

    def __init__(self, worker: Worker, grace: Duration) -> None:
        self._worker = worker
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._asked = 0
        self._stopping: list[asyncio.Task[None]] = []

    @property
    def stopping(self) -> bool:
        """True once somebody asked to stop."""
        return self._asked > 0

    @property
    def hurried(self) -> bool:
        """True once somebody asked twice: that jobs are handed back is what he wanted."""
        return self._asked > 1

    def install(self) -> None:
        """Listen from now on."""
        for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
            self._on(name, self.stop)
        self._on("SIGTSTP", self._be_quiet)
        self._on("SIGCONT", self._go_on)
        self._on("SIGUSR1", dump_stacks)

    def stop(self) -> None:
        """Stop: the more often it is asked, the faster."""
        self._asked += 1
        if self._asked == 1:
            log.info("stopping: running jobs have %s to end; once more cancels them", self._grace)
            self._stopping.append(self._loop.create_task(self._worker.stop(self._grace)))
        elif self._asked == 2:
            log.info("stopping now: running jobs are handed back")
            self._stopping.append(self._loop.create_task(self._worker.stop(0)))
        else:
            os._exit(CRASHED)

    async def stopped(self) -> None:
        """Everything that was asked is done."""
        await asyncio.gather(*self._stopping)

    def _on(self, name: str, act: object) -> None:
        number = getattr(signal, name, None)
        if number is None or not callable(act):
            return

        def heard(number: int, frame: FrameType | None) -> None:
            try:
                self._loop.call_soon_threadsafe(act)
            except RuntimeError:  # the loop has ended: only a thread that cannot be stopped keeps us here
                if act == self.stop:
                    os._exit(CRASHED)

        with contextlib.suppress(ValueError):  # not in the main thread: somebody else handles signals
            signal.signal(number, heard)

    def _be_quiet(self) -> None:
        self._worker.pause()
        log.info("quiet: nothing more is claimed, what runs goes on; SIGCONT goes on claiming")

    def _go_on(self) -> None:
        self._worker.resume()


def dump_stacks() -> None:
    """Show where every thread and every task is."""
    frames = sys._current_frames()
    for number, frame in frames.items():
        print(f"\nthread {number}", file=sys.stderr)
        traceback.print_stack(frame, file=sys.stderr)
    for task in asyncio.all_tasks():
        print(f"\ntask {task.get_name()}", file=sys.stderr)
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
