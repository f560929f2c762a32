"""A worker in a process of its own: `python -m bench.worker SPEC URL each|tally [starts seconds]`.

It says `ready`, then what it did by the clock that all processes share: `each` one line for every job (when it was
sent, when its handler began), `tally` now and then how many there were, and at the end when the first and the last
began. Its last word, when its standard input ends, is the processor time it used.
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
from bench.systems import adapter

PAUSE = 0.02
"""Seconds between two tallies."""


class Each:
    """Tell of every job."""

    def handle(self, payload: dict[str, Any], began: int | None = None) -> None:
        say(f"began {payload['sent']} {began or time.monotonic_ns()}")

    def end(self) -> None:
        """Nothing is left to tell."""


class Tally:
    """Tell of all jobs together, so that telling costs nothing."""

    def __init__(self) -> None:
        self.first = self.last = self.count = 0
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        threading.Thread(target=self._tell, daemon=True).start()

    def handle(self, payload: dict[str, Any]) -> None:
        self.count = next(self._numbers)
        self.last = time.monotonic_ns()
        if self.count == 1:
            self.first = self.last

    def _tell(self) -> None:
        told = 0
        while not self._over.wait(PAUSE):
            if self.count != told:
                told = self.count
                say(f"count {told}")

    def end(self) -> None:
        self._over.set()
        say(f"tally {self.first} {self.last} {self.count}")


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
    listener = Each() if how == "each" else Tally()
    cpu = run(work(spec, url, listener, limit))
    listener.end()
    say(f"cpu {cpu}")
