"""A worker in a process of its own: `python -m bench.worker SPEC URL each|tally|watched [starts seconds]`.

It says `ready`, then what it did by the clock that all processes share: `each` one line for every job (when it was
sent, when its handler began), `tally` now and then how many there were, and at the end when the first and the last
began; `watched` the same rarely, and the longest stall of its event loop under load. Its last word, when its standard
input ends, is the processor time it used.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from typing import Any

from bench.adapters.interface import Rate
from bench.child import run
from bench.collector import settle
from bench.service import Caller
from bench.stalls import Stalls
from bench.systems import adapter

PAUSE = 0.02
"""Seconds between two tallies."""


class Each:
    """Tell of every job."""

    def __init__(self) -> None:
        self._service = Caller()

    def handle(self, payload: dict[str, Any], began: int | None = None) -> None:
        now = began or time.monotonic_ns()
        self._service.call()
        say(f"began {payload['sent']} {now}")

    def end(self) -> None:
        """Nothing is left to tell."""


class Tally:
    """Tell of all jobs together, so that telling costs nothing."""

    pause = PAUSE

    def __init__(self) -> None:
        self.first = self.last = self.count = 0
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        threading.Thread(target=self._tell, daemon=True).start()

    def handle(self, payload: dict[str, Any], began: int | None = None) -> None:
        self.count = next(self._numbers)
        self.last = time.monotonic_ns()
        if self.count == 1:
            self.first = self.last

    def _tell(self) -> None:
        told = 0
        while not self._over.wait(self.pause):
            if self.count != told:
                told = self.count
                say(f"count {told}")

    def end(self) -> None:
        self._over.set()
        say(f"tally {self.first} {self.last} {self.count}")


class Watched(Tally):
    """Tell rarely, so that an idle worker is idle, and at the end of the longest stall of the event loop."""

    pause = 0.25

    def __init__(self) -> None:
        super().__init__()
        self.stalls = Stalls()
        self.loop: asyncio.AbstractEventLoop

    def handle(self, payload: dict[str, Any], began: int | None = None) -> None:
        super().handle(payload)
        if self.count == 2:
            # The first one came before the worker was left idle.
            self.loop.call_soon_threadsafe(self.stalls.watch)

    def end(self) -> None:
        super().end()
        say("stalls {} {}".format(*self.stalls.end()))


HOW = {"each": Each, "tally": Tally, "watched": Watched}


async def work(spec: str, url: str, listener: Each | Tally, limit: Rate | None) -> float:
    system = adapter(spec, url, limit)
    await system.open()
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    settle()
    before = time.process_time()
    if isinstance(listener, Watched):
        listener.loop = loop
    say("ready")
    await system.work(listener.handle, stop)
    used = time.process_time() - before + getattr(system, "worker_cpu", 0.0)
    await system.close()
    return used


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    spec, url, how, *numbers = sys.argv[1:]
    limit = Rate(int(numbers[0]), float(numbers[1])) if numbers else None
    listener = HOW[how]()
    cpu = run(work(spec, url, listener, limit))
    listener.end()
    say(f"cpu {cpu}")
