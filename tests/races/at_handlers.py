"""A limit counted where handlers begin: by their own clock, and by a strict service that counts arrivals.

`python -m tests.races.at_handlers redis --max 100 --per 1 --processes 4 --starts 1000 --way threads --busy --faults`
runs workers in processes of their own and prints what was seen. Each handler's first line writes the time, by the clock
that all processes of a machine share, and sends a datagram to the service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline import Queue, Rate, Worker
from paceline.stores import open_store

QUEUE = "line"
LEASE = "2s"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one run showed."""

    starts: int
    worst: int
    """The most handlers that began in any window of length `per`, by their own clock."""
    refused: int
    """Arrivals at the service that found its sliding window full."""
    used: float
    """The share of what the limit allows."""
    kills: int
    stops: int
    open: int
    """What is still open at the end."""


def worst_window(stamps: Sequence[int], length: int) -> int:
    """The most in any half-open window of this length; one begins at each."""
    ordered = sorted(stamps)
    return max((bisect_left(ordered, at + length) - place for place, at in enumerate(ordered)), default=0)


class Service:
    """Counts arrivals in a process of its own, strictly: in every window of length `per` at most `max`."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "service"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def arrivals(self) -> list[int]:
        """When everything arrived; ends the service."""
        out, _ = self._process.communicate("end\n", timeout=30)
        return [int(line) for line in out.split()]


def serve() -> None:
    """The service: stamp every datagram as it comes."""
    arriving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    arriving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    arriving.bind(("127.0.0.1", 0))
    print(arriving.getsockname()[1], flush=True)
    arriving.settimeout(0.2)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    stamps: list[int] = []
    while True:
        try:
            arriving.recv(16)
            stamps.append(time.monotonic_ns())
        except TimeoutError:
            if over.is_set():
                break
    print("\n".join(map(str, stamps)))


async def work(url: str, log: str, port: int, way: str, slots: int, delay: float, blocks: float) -> None:
    """A worker until SIGTERM."""
    store = open_store(url)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    service = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    service.connect(("127.0.0.1", port))

    def begin(job: Any) -> None:
        now = time.monotonic_ns()
        service.send(b"x")
        os.write(file, struct.pack("<q", now))
        if blocks:
            time.sleep(blocks)

    async def begin_in_loop(job: Any) -> None:
        begin(job)

    if delay:
        _slow_down(store, delay)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    handler = begin if way == "threads" else begin_in_loop
    async with Worker(QUEUE, handler, store=store, concurrency=slots, lease=LEASE):
        print("ready", flush=True)
        await stopping.wait()
    await store.close()


def _slow_down(store: Any, delay: float) -> None:
    """As if the store were farther away: every question and every answer takes so many seconds more."""
    for name in ("claim", "finish", "extend", "decide_again", "begun"):
        call = getattr(store, name)

        async def slow(*args: Any, call: Any = call) -> Any:
            await asyncio.sleep(delay)
            answer = await call(*args)
            await asyncio.sleep(delay)
            return answer

        setattr(store, name, slow)


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a limit is measured."""

    url: str
    max: int = 100
    per: float = 1.0
    processes: int = 4
    starts: int = 500
    way: str = "loop"
    slots: int = 0
    """For each process; 0: as many as the limit allows at once."""
    busy: bool = False
    """Other programs keep every processor busy."""
    faults: bool = False
    """Workers are killed and replaced, and stopped for a while."""
    delay: float = 0.0
    blocks: float = 0.0


async def measure(run: Run) -> Seen:
    """Everything waits from the beginning; gives what was seen when it all has run."""
    store = open_store(run.url)
    queue = Queue(QUEUE, store=store, limits=[Rate(run.max, per=run.per)])
    await queue.add_many([("work", None)] * run.starts)
    service = Service()
    with tempfile.TemporaryDirectory() as folder:
        crew = _Crew(run, Path(folder), service.port)
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        for burner in burners if not run.busy else ():
            burner.kill()
        try:
            await _wait(queue, crew, run)
        finally:
            crew.close()
            for burner in burners:
                burner.kill()
                burner.wait()
        begins = crew.begins()
    arrivals = service.arrivals()
    usage = await store.usage(f"queue:{QUEUE}", None)
    await store.close()
    window = round(run.per * 1e9)
    ordered = sorted(begins)
    # The last window is not a whole one: as many windows as were full, and the starts of one more.
    took = (ordered[-1] - ordered[0]) / window
    used = ((len(ordered) - 1) // run.max) / took if took else 1.0
    refused = sum(1 for place, at in enumerate(arrivals) if place - bisect_left(arrivals, at - window + 1) >= run.max)
    return Seen(
        starts=len(begins),
        worst=worst_window(begins, window),
        refused=refused,
        used=used,
        kills=crew.kills,
        stops=crew.stops,
        open=usage.open,
    )


class _Crew:
    def __init__(self, run: Run, folder: Path, port: int) -> None:
        self._run, self._folder, self._port = run, folder, port
        self.kills = self.stops = 0
        self.members = [self._start() for _ in range(run.processes)]
        for member in self.members:
            assert member.stdout is not None and member.stdout.readline() == "ready\n"

    def _start(self) -> subprocess.Popen[str]:
        run = self._run
        slots = run.slots or min(run.max, 100)
        number = len(list(self._folder.iterdir()))
        log = self._folder / f"{number}-{random.randrange(1 << 30)}"
        log.touch()
        words = [run.url, str(log), str(self._port), run.way, str(slots), str(run.delay), str(run.blocks)]
        command = [sys.executable, "-m", "tests.races.at_handlers", "work", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    async def fault(self) -> None:
        """One of them is killed and replaced, or stands still for a moment."""
        place = random.randrange(len(self.members))
        member = self.members[place]
        if random.random() < 0.5:
            member.send_signal(signal.SIGSTOP)
            await asyncio.sleep(random.choice([0.03, 0.1, 0.4]))
            member.send_signal(signal.SIGCONT)
            self.stops += 1
        else:
            member.kill()
            member.wait()
            self.members[place] = self._start()
            self.kills += 1

    def begins(self) -> list[int]:
        logs = [log.read_bytes() for log in self._folder.iterdir()]
        return [at for log in logs for (at,) in struct.iter_unpack("<q", log[: len(log) // 8 * 8])]

    def close(self) -> None:
        for member in self.members:
            member.send_signal(signal.SIGCONT)
            member.terminate()
        for member in self.members:
            try:
                member.wait(timeout=30)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()


async def _wait(queue: Queue, crew: _Crew, run: Run) -> None:
    deadline = time.monotonic() + 60 + 4 * run.per * run.starts / run.max
    while True:
        await asyncio.sleep(0.3)
        if run.faults and len(crew.begins()) < run.starts * 0.9:
            await crew.fault()
        counts = await queue.counts()
        if not (counts["waiting"] or counts["active"] or counts["delayed"]):
            return
        assert time.monotonic() < deadline, f"not done: {counts}"


def main() -> None:
    if sys.argv[1:2] == ["service"]:
        serve()
        return
    if sys.argv[1:2] == ["work"]:
        url, log, port, way, slots, delay, blocks = sys.argv[2:]
        asyncio.run(work(url, log, int(port), way, int(slots), float(delay), float(blocks)))
        return
    from ..servers.fresh import empty_postgres
    from ..servers.redis import empty_redis

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=["sqlite", "postgres", "redis"])
    parser.add_argument("--max", type=int, default=100)
    parser.add_argument("--per", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--way", choices=["loop", "threads"], default="loop")
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--blocks", type=float, default=0.0)
    asked = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        urls = {
            "sqlite": lambda: f"sqlite:///{folder}/jobs.db",
            "postgres": empty_postgres,
            "redis": empty_redis,
        }
        run = Run(url=urls[asked.pop("store")](), **asked)
        print(json.dumps(asdict(asyncio.run(measure(run)))))


if __name__ == "__main__":
    main()
