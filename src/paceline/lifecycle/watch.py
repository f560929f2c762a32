"""A thread that looks at the clock when a handler in another thread has begun, however busy the event loop is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from paceline.clock import Micros, since_boot
from paceline.forks import reset_when_forked

Began: TypeAlias = Callable[[Micros], None]
"""Called in the event loop: a handler has begun at this instant of `since_boot`, or a little earlier."""


class Watch:
    """Comes to run when a handler's thread lets go of the interpreter: the handler has begun by then."""

    def __init__(self) -> None:
        self.forked()
        reset_when_forked(self)

    def forked(self) -> None:
        """A child process has none of its parent's threads."""
        self._lock = threading.Lock()
        self._passed: SimpleQueue[tuple[Began, asyncio.AbstractEventLoop]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def passed(self, began: Began, loop: asyncio.AbstractEventLoop) -> None:
        """A handler's thread has passed the gate and goes on to its first line."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._look, name="paceline-watch", daemon=True)
                    self._thread.start()
        self._passed.put((began, loop))

    def _look(self) -> None:
        while True:
            began, loop = self._passed.get()
            at = since_boot()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(began, at)
            del began, loop


WATCH = Watch()
