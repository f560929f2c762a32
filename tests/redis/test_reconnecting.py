"""A server that goes away, forgets our steps or falls silent: workers go on by themselves, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from paceline import Job, Queue, Worker
from paceline.errors import StoreError
from paceline.stores import open_store

BACK = 5.0
"""Seconds within which a worker consumes again."""
LOG = ("--appendonly", "yes", "--appendfsync", "always")


class Consuming:
    """A worker on a server, and a queue on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.done: list[object] = []
        self.store, self.other = open_store(url), open_store(url)
        self.queue = Queue("line", store=self.other)

        async def handler(job: Job[None]) -> None:
            self.done.append(job.data)

        self.worker = Worker("line", handler, store=self.store, concurrency=4)

    async def close(self) -> None:
        await self.store.close()
        await self.other.close()

    async def add(self, data: object) -> None:
        """Add a job, again and again until the server has it: the id makes one job of all tries."""
        deadline = time.monotonic() + BACK
        while True:
            try:
                await self.queue.add("work", data, job_id=f"job {data}")
                return
            except StoreError:
                assert time.monotonic() < deadline, "the queue did not find the server again"
                await asyncio.sleep(0.05)

    async def until_done(self, data: object) -> float:
        started = time.monotonic()
        while data not in self.done:
            assert time.monotonic() - started < BACK, f"{data} was not done; done are {self.done}"
            await asyncio.sleep(0.01)
        return time.monotonic() - started


async def check(url: str, disturb: Callable[[], Awaitable[None]]) -> None:
    consuming = Consuming(url)
    async with consuming.worker:
        await consuming.add(1)
        await consuming.until_done(1)
        await disturb()
        await consuming.add(2)
        await consuming.until_done(2)
        await asyncio.sleep(0.1)
        await consuming.add(3)
        assert await consuming.until_done(3) < 1, "the worker slept through an arrival"
    await consuming.close()
    assert sorted(consuming.done) == [1, 2, 3]


async def test_a_worker_goes_on_after_a_restart_of_the_server(new_server):
    server = new_server(*LOG)

    async def restart() -> None:
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.start)

    await check(server.url, restart)


async def test_a_worker_goes_on_after_a_power_cut(new_server):
    server = new_server(*LOG)

    async def cut() -> None:
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    await check(server.url, cut)


@pytest.mark.parametrize("command", ["FUNCTION FLUSH", "SCRIPT FLUSH", "CLIENT KILL TYPE normal"])
async def test_a_worker_goes_on_when_the_server_forgets(new_server, command):
    server = new_server()

    async def forget() -> None:
        server.ask(*command.split())

    await check(server.url, forget)


async def test_a_worker_goes_on_after_a_server_that_was_silent(new_server):
    server = new_server()

    async def silence() -> None:
        os.kill(server.process.pid, signal.SIGSTOP)
        await asyncio.sleep(2)
        os.kill(server.process.pid, signal.SIGCONT)

    await check(server.url, silence)


async def test_a_server_that_was_away_for_hundreds_of_tries_is_found_again(new_server):
    server = new_server()
    store = open_store(server.url)
    await store.open()
    server.kill()

    for _ in range(300):
        with pytest.raises(StoreError):
            await store.counts("line")
    server.start()

    assert (await store.counts("line"))["waiting"] == 0
    await store.close()


async def test_a_call_to_a_silent_server_ends(new_server):
    server = new_server()
    store = open_store(server.url, timeout=0.5, connect_timeout=0.5)
    await store.open()

    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreError, match=r"did not answer|cannot be reached"):
            await asyncio.wait_for(store.counts("line"), 5)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert (await store.counts("line"))["waiting"] == 0
    await store.close()


async def test_whoever_waits_for_a_job_hears_of_its_end_across_a_restart(new_server):
    server = new_server(*LOG)
    consuming = Consuming(server.url)
    job = await consuming.queue.add("work", 1)
    waiter = asyncio.create_task(job.result(timeout=20))
    await asyncio.sleep(0.2)

    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    async with consuming.worker:
        await asyncio.wait_for(waiter, 10)

    await consuming.close()
