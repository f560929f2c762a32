"""Sleepers: they cost nothing while nothing happens, and one that dies on the way to its job delays nobody for long."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline import Job, Limit, Queue, Rate, Worker, worker
from paceline.stores import open_store
from paceline.stores.redis import listeners, resting

from ..servers.redis import RedisServer

WORKERS = 8
SOON = 1.0
"""Seconds within which a job starts although the first worker that was woken for it is dead."""


def commands(server: RedisServer) -> dict[str, int]:
    """The commands that the server ran since the last reset, those inside its functions too."""
    stats = server.ask("INFO", "commandstats").decode()
    calls = {name: int(number) for name, number in re.findall(r"cmdstat_(\S+?):calls=(\d+)", stats)}
    return {name: number for name, number in calls.items() if not name.startswith(("config", "info"))}


async def until_quiet(server: RedisServer) -> None:
    """What began before has ended: the server hears nothing for a moment."""
    for _ in range(20):
        server.ask("CONFIG", "RESETSTAT")
        await asyncio.sleep(0.4)
        if not commands(server):
            return
    raise AssertionError(commands(server))


class Crew:
    """Workers that have nothing in common but the server, as if each were a process of its own."""

    def __init__(self, url: str, number: int) -> None:
        self.started: list[float] = []
        self.stores = [open_store(url) for _ in range(number)]

        self.news = asyncio.Event()

        async def handler(job: Job[None]) -> None:
            self.started.append(time.monotonic())
            self.news.set()

        self.workers = [Worker("line", handler, store=store) for store in self.stores]

    async def __aenter__(self) -> Crew:
        for each in self.workers:
            await each.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for each in self.workers:
            await each.__aexit__(None, None, None)
        for store in self.stores:
            await store.close()

    async def until_started(self, number: int) -> None:
        async with asyncio.timeout(30):
            while len(self.started) < number:
                self.news.clear()
                await self.news.wait()


async def test_eight_blocked_workers_ask_for_nothing_for_twenty_seconds_and_then_start_at_once(new_server):
    server = new_server()
    async with Crew(server.url, WORKERS) as crew:
        queue = Queue("line", store=crew.stores[0], limits=[Limit("slow", Rate(1, per="24s"))])
        await queue.add_many([("work", None)] * 3)
        await crew.until_started(1)
        await until_quiet(server)
        server.ask("CONFIG", "RESETSTAT")
        await asyncio.sleep(20)
        ran = commands(server)
        await crew.until_started(2)

    assert sum(ran.values()) <= 3 * WORKERS, ran
    assert 23.99 <= crew.started[1] - crew.started[0] < 24.5


async def test_a_look_for_lost_words_costs_one_command(new_server, monkeypatch):
    server = new_server()
    monkeypatch.setattr(worker, "INSURANCE", 1_000_000)
    monkeypatch.setattr(resting, "LONG", 0.5)
    monkeypatch.setattr(listeners, "BLOCK", 1)
    async with Crew(server.url, WORKERS) as crew:
        queue = Queue("line", store=crew.stores[0], limits=[Limit("slow", Rate(1, per="1h"))])
        await queue.add_many([("work", None)] * 3)
        await crew.until_started(1)
        await asyncio.sleep(2.5)
        server.ask("CONFIG", "RESETSTAT")
        await asyncio.sleep(4)
        ran = commands(server)
        # Thirty times as often as usual: a look and a new wait each second.
        assert sum(ran.values()) <= 2 * 5 * WORKERS, ran

        await crew.stores[0].clear("slow", None)
        await crew.until_started(2)


async def test_a_look_finds_what_was_added_without_a_word(new_server, monkeypatch):
    server = new_server()
    monkeypatch.setattr(worker, "INSURANCE", 500_000)
    monkeypatch.setattr(resting, "LONG", 0.2)
    async with Crew(server.url, 2) as crew:
        queue = Queue("line", store=open_store(server.url))
        await asyncio.sleep(1.2)
        for key in (b"asleep", b"sleep\x1fline"):
            server.ask("DEL", "{paceline:default}:" + key.decode())
        await queue.add("work", None)
        await crew.until_started(1)
        await queue.store.close()


class Process:
    """A worker in a process of its own that can be killed."""

    def __init__(self, url: str) -> None:
        program = [sys.executable, str(Path(__file__).with_name("race_worker.py")), url, "0"]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def until_asleep(self, server: RedisServer, sleepers: int) -> None:
        deadline = time.monotonic() + 20
        while server.ask("ZCARD", "{paceline:default}:sleep\x1fline") != b":%d\r\n" % sleepers:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.mark.parametrize("when", ["asleep", "woken"])
@pytest.mark.parametrize("victims", [1, 4])
async def test_a_worker_that_dies_on_the_way_to_its_job_delays_it_by_a_moment(new_server, when, victims):
    server = new_server()
    async with Crew(server.url, 2) as crew:
        queue = Queue("line", store=open_store(server.url))
        processes = []
        for number in range(victims):
            # They went to sleep last, so they are woken first.
            processes.append(Process(server.url))
            await asyncio.to_thread(processes[-1].until_asleep, server, 3 + number)
        if when == "asleep":
            for each in processes:
                each.kill()
        else:
            for each in processes:
                os.kill(each.process.pid, signal.SIGSTOP)
        added = time.monotonic()
        await queue.add("work", None)
        for each in processes if when == "woken" else ():
            each.kill()
        await crew.until_started(1)
        await queue.store.close()

    assert crew.started[0] - added < SOON * (1 if victims == 1 else 1.5)


async def test_watching_over_those_who_are_woken_ends(new_server):
    server = new_server()
    async with Crew(server.url, 4) as crew:
        queue = Queue("line", store=open_store(server.url))
        for number in range(1, 21):
            await queue.add("work", None)
            await crew.until_started(number)
        await asyncio.sleep(1)
        server.ask("CONFIG", "RESETSTAT")
        await asyncio.sleep(1)
        ran = commands(server)
        await queue.store.close()

    assert ran == {}


async def test_who_stops_listening_leaves_no_name_behind(new_server):
    server = new_server()
    async with Crew(server.url, 3):
        assert b"asleep" in server.ask("KEYS", "*asleep*")

    assert server.ask("KEYS", "*sleep*") == b"*0\r\n"
    assert server.ask("KEYS", "*wake*") == b"*0\r\n"


async def test_strange_words_are_ignored(new_server):
    server = new_server()
    async with Crew(server.url, 1) as crew:
        queue = Queue("line", store=open_store(server.url))
        await until_quiet(server)
        (waker,) = re.findall(
            r"\b[0-9a-f]{32}\b", server.ask("ZRANGE", "{paceline:default}:asleep", "0", "-1").decode()
        )
        for number, word in enumerate(("", "f", "hello", "7"), 1):
            server.ask("RPUSH", f"{{paceline:default}}:wake\x1f{waker}", word)
            await asyncio.sleep(0.2)
            added = time.monotonic()
            await queue.add("work", None)
            await crew.until_started(number)
            assert crew.started[-1] - added < SOON
        await queue.store.close()


async def test_a_sleeper_that_hears_nothing_for_long_stays_known(new_server, monkeypatch):
    monkeypatch.setattr(listeners, "BLOCK", 1)
    monkeypatch.setattr(listeners, "RENEW", 0.5)
    server = new_server()

    def known_since() -> bytes:
        return server.ask("ZRANGE", "{paceline:default}:asleep", "0", "-1", "WITHSCORES")

    async with Crew(server.url, 1):
        await asyncio.sleep(0.3)
        before = known_since()
        await asyncio.sleep(2.5)

        assert known_since() != before
        assert known_since().count(b"\r\n") == before.count(b"\r\n")


@pytest.mark.parametrize("paused", [0, 1])
async def test_a_word_that_a_worker_cannot_act_on_wakes_another(new_server, monkeypatch, paused):
    monkeypatch.setattr(listeners, "WATCH", 60)  # those who watch over the woken come too late here
    server = new_server()
    async with Crew(server.url, 2) as crew:
        queue = Queue("line", store=open_store(server.url))
        await until_quiet(server)
        crew.workers[paused].pause()
        for number in range(1, 4):
            await queue.add("work", None)
            async with asyncio.timeout(10):
                await crew.until_started(number)
        await queue.store.close()
