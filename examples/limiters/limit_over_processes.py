"""Process boundaries: rate and concurrency are exact over any number of processes that share a store.

In the original only the rate limiter on a shared storage looks beyond its own process. Here four processes ask for ten
permits of each of two limits, all at the same time.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from paceline import Concurrency, Limiter, Rate

LIMITS = {"rate": Rate(10, per="1h"), "slots": Concurrency(7)}


def main() -> dict[str, int]:
    """How many permits four processes got together."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'limits.db'}"
        command = [sys.executable, __file__, url]
        children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
        # Each child says what it got, and holds its permits until its standard input is closed.
        said = [child.stdout.readline().split() for child in children if child.stdout]
        for child in children:
            child.communicate()
        return {name: sum(int(counts[number]) for counts in said) for number, name in enumerate(LIMITS)}


async def child(url: str) -> None:
    got = []
    for name, kind in LIMITS.items():
        limiter = Limiter(name, kind, store=url)
        got.append([permit for _ in range(10) if (permit := await limiter.try_acquire())])
    print(*(len(permits) for permits in got), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(child(sys.argv[1]))
    else:
        print("four processes together:", main())
