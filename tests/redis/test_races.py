"""Eight processes on one server, with and without faults: no window, slot or group limit is broken, and all is used.

`PACELINE_RACE_SECONDS=30` makes it as long as a release needs it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from paceline import Concurrency, Limit, Queue, Rate
from paceline.job import JobState
from paceline.stores import open_store
from paceline.stores.interface import Filter

SECONDS = float(os.environ.get("PACELINE_RACE_SECONDS", "6"))
PROCESSES = 8
SECOND = 1_000_000
GROUPS = [f"g{number}" for number in range(5)]
LIMITS = [
    Limit("hundred", Rate(100, per="1s"), tasks=["hundred", "all"]),
    Limit("ten", Rate(10, per="1s"), tasks=["ten", "all"]),
    Limit("seven", Concurrency(7), tasks=["seven", "all"]),
    Limit("tenant", Rate(5, per="1s") & Concurrency(2), by="group", tasks=["tenant", "all"]),
]


class Race:
    """Worker processes on one server, and what they leave behind."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.processes: list[subprocess.Popen[bytes]] = []
        self.store = open_store(url)
        self.queue = Queue("line", store=self.store, limits=LIMITS)

    async def fill(self) -> None:
        """More than can be started."""
        number = int(SECONDS + 5)
        await self.queue.add_many([("hundred", None)] * 110 * number)
        await self.queue.add_many([("ten", None)] * 11 * number)
        await self.queue.add_many([("seven", None)] * 300 * number)
        for group in GROUPS:
            await self.queue.add_many([("tenant", None, {"group": group})] * 6 * number)
            await self.queue.add_many([("all", None, {"group": group})] * 4 * number)

    def start_worker(self, hours: float) -> None:
        program = [sys.executable, str(Path(__file__).with_name("race_worker.py")), self.url, str(hours)]
        self.processes.append(subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))

    async def until_ready(self) -> None:
        for process in self.processes:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.send_signal(signal.SIGCONT)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    async def check(self) -> dict[str, float]:
        """Nothing is broken; returns how much of each rate was used."""
        starts = await self.queue.starts()
        assert len(starts) > 100
        of: dict[str, list[int]] = defaultdict(list)
        of_group: dict[str, list[int]] = defaultdict(list)
        for start in starts:
            at = int(start.at.timestamp() * SECOND + 0.5)
            for name in ("hundred", "ten"):
                if start.task in (name, "all"):
                    of[name].append(at)
            if start.task in ("tenant", "all"):
                of_group[start.group or ""].append(at)
        assert most_in_a_window(of["hundred"]) <= 100
        assert most_in_a_window(of["ten"]) <= 10
        assert max(map(most_in_a_window, of_group.values())) <= 5
        records = await self.store.find(Filter(queue="line", state=JobState.COMPLETED, limit=1_000_000))
        runs = [(job.task, job.group, job.started_at, job.finished_at) for job in records]
        assert most_at_once((at, end) for task, _, at, end in runs if task in ("seven", "all")) <= 7
        for group in GROUPS:
            mine = ((at, end) for task, own, at, end in runs if own == group and task in ("tenant", "all"))
            assert most_at_once(mine) <= 2
        return {name: used(ats, most) for (name, ats), most in zip(of.items(), (100, 10), strict=True)}


def most_in_a_window(ats: list[int]) -> int:
    ats.sort()
    return max((index + 1 - bisect_left(ats, at - SECOND + 1) for index, at in enumerate(ats)), default=0)


def most_at_once(runs: Iterable[tuple[int | None, int | None]]) -> int:
    steps = sorted(step for at, end in runs for step in ((at or 0, 1), (end or 0, -1)))
    most = now = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def used(ats: list[int], most: int) -> float:
    """The share of a rate that was used, from the first start to the last full window."""
    ats.sort()
    length = (ats[-1] - ats[0]) // SECOND * SECOND
    return sum(1 for at in ats if at < ats[0] + length) / (length / SECOND * most)


async def test_eight_processes_keep_to_every_limit_and_use_it(new_server):
    race = Race(new_server("--appendonly", "yes").url)
    await race.fill()
    for number in range(PROCESSES):
        race.start_worker(0.0 if number < 4 else random.uniform(-1, 1))
    try:
        await race.until_ready()
        await asyncio.sleep(SECONDS)
        shares = await race.check()
    finally:
        race.end()
        await race.store.close()
    assert min(shares.values()) >= 0.98, shares


async def test_kills_zombies_wrong_clocks_and_restarts_break_nothing(new_server):
    server = new_server("--appendonly", "yes")
    race = Race(server.url)
    await race.fill()
    for number in range(PROCESSES):
        race.start_worker([0, 1, -1][number % 3])
    chance = random.Random(7)
    try:
        await race.until_ready()
        for part in range(6):
            await asyncio.sleep(SECONDS / 6)
            victim = chance.choice(race.processes)
            match part % 3:
                case 0:
                    victim.kill()
                    race.start_worker(chance.uniform(-1, 1))
                case 1:
                    victim.send_signal(signal.SIGSTOP)  # a zombie: its leases end, then it goes on
                    asyncio.get_running_loop().call_later(2.5, victim.send_signal, signal.SIGCONT)
                    server.ask("SCRIPT", "FLUSH")
                    server.ask("FUNCTION", "FLUSH")
                case _ if part == 2:
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
        await asyncio.sleep(4)
        await race.check()
        assert (await race.queue.counts())["active"] <= PROCESSES * 10
    finally:
        race.end()
        await race.store.close()
