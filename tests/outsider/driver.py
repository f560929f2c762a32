"""Drives one random history over the public interface: several programs, kills and stops, then an oracle.

python -m tests.outsider.driver sqlite --seed 7 --seconds 10
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from paceline import App, Queue, Store, open_store

from .oracle import Evidence, findings, summary
from .program import Notes, OperatorProgram, WorkerProgram
from .world import QUEUES, World

ROOT = Path(__file__).parents[2]
READY = 120.0
"""Seconds in which a program begins: a busy machine takes long to start one."""
STUCK = 15.0
"""Seconds in which something must start or end while jobs wait: longer than any window of a history or lease of its
jobs, and less than the insurance of a lost wake-up."""
PERMIT = 32.0
"""Seconds after which what a killed program had acquired is free: the lease of a permit, and a moment."""


def run_history(url: str, namespace: str, seed: int, seconds: float, folder: Path) -> list[str]:
    """Run one history and give what is wrong with it."""
    run = _in_this_process if url.startswith("memory:") else _in_processes
    return asyncio.run(run(url, namespace, seed, seconds, folder))


async def _in_this_process(url: str, namespace: str, seed: int, seconds: float, folder: Path) -> list[str]:
    """A memory store lives in one process: the programs are tasks of one loop, and nobody is killed."""
    store = open_store(url, namespace=namespace)
    programs = [OperatorProgram(store, namespace, seed, 0, Notes(str(folder / "0.log")))]
    for number in range(1, random.Random(seed).randint(1, 3) + 1):
        programs.append(WorkerProgram(store, namespace, seed, number, Notes(str(folder / f"{number}.log"))))
    async with asyncio.TaskGroup() as together:
        for program in programs:
            together.create_task(program.run())
        await asyncio.sleep(seconds)
        for program in programs:
            program.adding = False
        programs[0].stopping.set()
        stuck = await _settled(store, 0)
        for program in programs[1:]:
            program.stopping.set()
    wrong = stuck + findings(await _evidence(store, seed, folder, {}))
    await store.close()
    return wrong


async def _in_processes(url: str, namespace: str, seed: int, seconds: float, folder: Path) -> list[str]:
    chance = random.Random(f"driver {seed}")
    crew = _Crew(url, namespace, seed, folder)
    store = open_store(url, namespace=namespace)
    try:
        await store.open()
        operator = await crew.start("operate")
        workers = [await crew.start("work") for _ in range(chance.randint(1, 3))]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            victim = chance.choice(workers)
            if chance.random() < 0.3:
                crew.kill(victim)
                workers[workers.index(victim)] = await crew.start("work")
            elif chance.random() < 0.3:
                crew.stop_for(victim, chance.uniform(0.05, 0.8))
        for worker in workers:
            crew.signal(worker, signal.SIGUSR1)
        await crew.end(operator)
        wrong = await _settled(store, max(crew.killed.values(), default=0) + PERMIT)
        for worker in workers:
            await crew.end(worker)
        wrong += crew.complaints + findings(await _evidence(store, seed, folder, crew.killed))
    finally:
        crew.close()
        await store.close()
    return wrong


class _Crew:
    """The processes of a history; those that are left at the end are killed."""

    def __init__(self, url: str, namespace: str, seed: int, folder: Path) -> None:
        self._arguments = (url, namespace, str(seed))
        self._folder = folder
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self.killed: dict[int, float] = {}
        self.complaints: list[str] = []

    async def start(self, role: str) -> int:
        number = len(self._members)
        log = self._folder / f"{number}.log"
        command = [sys.executable, "-m", "tests.outsider.program", role, *self._arguments, str(number), str(log)]
        with (self._folder / f"{number}.err").open("wb") as errors:
            self._members[number] = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=errors)
        deadline = time.monotonic() + READY
        while not (log.exists() and b'"ready"' in log.read_bytes()):
            code = self._members[number].poll()
            assert code is None, f"program {number} ended with {code}: {self._errors(number)}"
            assert time.monotonic() < deadline, f"program {number} did not begin within {READY:.0f} s"
            await asyncio.sleep(0.02)
        return number

    def kill(self, number: int) -> None:
        self._members[number].kill()
        self._members[number].wait()
        self.killed[number] = time.time()

    def stop_for(self, number: int, seconds: float) -> None:
        """Stop a process for a moment, as a busy or suspended machine does."""
        self.signal(number, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(seconds, self.signal, number, signal.SIGCONT)

    def signal(self, number: int, which: int) -> None:
        if self._members[number].poll() is None:
            os.kill(self._members[number].pid, which)

    async def end(self, number: int) -> None:
        self.signal(number, signal.SIGCONT)
        self.signal(number, signal.SIGTERM)
        try:
            code: Any = await asyncio.to_thread(self._members[number].wait, 40)
        except subprocess.TimeoutExpired:
            code = "none: it did not end"
        if code != 0:
            self.complaints.append(f"program {number} ended with {code}: {self._errors(number)}")

    def close(self) -> None:
        for process in self._members.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _errors(self, number: int) -> str:
        return (self._folder / f"{number}.err").read_text()[-2000:]


async def _settled(store: Store, held_until: float) -> list[str]:
    """Wait until nothing is waiting, delayed or active, as long as something goes on, or a slot may be held."""
    queues = [Queue(name, store=store) for name in QUEUES]
    before, changed_at = None, time.monotonic()
    while time.monotonic() < changed_at + STUCK or time.time() < held_until:
        counts = [await queue.counts() for queue in queues]
        if not any(count[state] for count in counts for state in ("waiting", "delayed", "active")):
            return []
        now = counts, [len(await queue.starts()) for queue in queues]
        if now != before:
            before, changed_at = now, time.monotonic()
        await asyncio.sleep(0.1)
    wrong = [f"nothing started or ended for {STUCK:.0f} s:"]
    for queue in queues:
        for state in ("waiting", "delayed", "active"):
            for job in await queue.list(state, limit=3):
                wrong.append(f"  {queue.name} {job.id} {state}: {(await job.explain()).text}")
    return wrong


async def _evidence(store: Store, seed: int, folder: Path, killed: dict[int, float]) -> Evidence:
    notes = []
    for log in folder.glob("*.log"):
        for line in log.read_bytes().split(b"\n")[:-1]:
            notes.append(json.loads(line) | {"program": int(log.stem)})
    notes.sort(key=lambda note: note["at"])
    app = App(store)
    starts = {name: list(await app.queue(name).starts()) for name in QUEUES}
    states = {}
    for job_id in {job for note in notes if note["what"] == "added" for job in note["jobs"]}:
        job = await app.get(job_id)
        if job is not None:
            states[job_id] = str(job.state)
    return Evidence(World.of(seed), notes, starts, states, killed)


def main() -> None:
    from .places import STORES, place

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--times", type=int, default=1)
    arguments = parser.parse_args()
    for turn in range(arguments.times):
        seed = random.randrange(2**31) if arguments.seed is None else arguments.seed + turn
        with tempfile.TemporaryDirectory() as folder:
            url, namespace = place(arguments.store, Path(folder))
            wrong = run_history(url, namespace, seed, arguments.seconds, Path(folder))
        print(f"{arguments.store} seed {seed}: {'ok' if not wrong else summary(wrong)}", flush=True)
        if wrong:
            sys.exit(1)


if __name__ == "__main__":
    main()
