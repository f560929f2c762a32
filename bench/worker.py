"""A worker in a process of its own: `python bench/worker.py ours-normal-off jobs.db [starts seconds]`.

It says `ready`, then one line for each job (when it was sent, when its handler began, by the clock that all processes
share), and at the end of its standard input the processor time it has used.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from child import file_adapter, run, settle


async def work(system: str, file: Path, limit: tuple[int, int] | None) -> dict[str, Any]:
    adapter = file_adapter(system, file, limit)
    stop = threading.Event()

    def handle(payload: Any) -> None:
        began = time.monotonic_ns()
        say(f"{payload['sent']} {began}")

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    settle()
    before = time.process_time()
    say("ready")
    await adapter.serve(handle, stop)
    used = time.process_time() - before
    await adapter.close()
    return {"cpu": used}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    system, file, *numbers = sys.argv[1:]
    limit = (int(numbers[0]), int(numbers[1])) if numbers else None
    say(f"cpu {run(work(system, Path(file), limit))['cpu']}")
