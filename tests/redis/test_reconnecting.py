"""A server that goes away, forgets our steps or falls silent: workers go on by themselves, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from paceline import Job, Limit, Queue, Rate, Worker
from paceline.errors import StoreError
from paceline.stores import open_store
from paceline.stores.redis.client import keepalive

from ..servers.redis import RedisServer, free_port
from .proxy import Proxy

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


async def test_a_worker_goes_on_when_its_connections_lead_nowhere(new_server):
    server = new_server()
    proxy = Proxy(server.port)
    near = Consuming(server.url)
    far = open_store(f"redis://127.0.0.1:{proxy.port}/0", timeout=2)
    done = asyncio.Event()

    async def handler(job: Job[None]) -> None:
        near.done.append(job.data)
        done.set()
        await asyncio.sleep(0.05)

    async with Worker("line", handler, store=far, concurrency=1):
        for number in range(200):
            await near.add(number)
        await asyncio.wait_for(done.wait(), 5)
        proxy.freeze()
        seen = len(near.done)
        frozen_at = time.monotonic()
        while len(near.done) <= seen + 1:
            done.clear()
            await asyncio.wait_for(done.wait(), BACK)
        assert time.monotonic() - frozen_at < BACK
        # It listens on a new connection too.
        await near.queue.drain()
        await asyncio.sleep(0.5)
        await near.add("later")
        assert await near.until_done("later") < 1
    await far.close()
    await near.close()
    proxy.close()


async def test_vanished_peers_are_noticed_by_the_kernel(new_server):
    store = open_store(new_server().url)
    await store.open()
    wire = (await store._client.wire())._socket

    found = {name: wire.getsockopt(socket.IPPROTO_TCP, name) for name in keepalive()}

    assert found == keepalive()
    assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, every, times = (found[getattr(socket, f"TCP_KEEP{name}")] for name in ("IDLE", "INTVL", "CNT"))
    assert idle + every * times <= BACK
    await store.close()


@pytest.mark.parametrize("loses", [False, True])
async def test_a_worker_goes_on_with_a_replica_that_became_primary(new_server, loses):
    primary = new_server(*LOG, "--repl-diskless-sync-delay", "0")
    replica = new_server(*LOG, "--replicaof", f"127.0.0.1 {primary.port}")
    proxy = Proxy(primary.port)
    url = f"redis://127.0.0.1:{proxy.port}/0"
    consuming = Consuming(url)
    limits = [Limit("service", Rate(100, per="3s"), tasks=["limited"])]
    queue = Queue("line", store=consuming.other, limits=limits)
    async with consuming.worker:
        await consuming.add(1)
        await consuming.until_done(1)
        await asyncio.to_thread(until_in_step, primary, replica)
        if loses:
            replica.ask("REPLICAOF", "127.0.0.1", str(free_port()))
        await queue.add("limited", 2)
        await consuming.until_done(2)
        if not loses:
            await asyncio.to_thread(until_in_step, primary, replica)

        primary.kill()
        failed_at = time.monotonic()
        replica.ask("REPLICAOF", "NO", "ONE")
        proxy.target = replica.port
        proxy.cut()
        # What no rate limits goes on; what one does waits until starts that were lost, if there are any, count no more.
        await consuming.add(3)
        await consuming.until_done(3)
        assert time.monotonic() - failed_at < BACK
        if loses:
            await consuming.other.set_limits(limits)
        held = await queue.add("limited", 4)
        explained = str(await queue.explain(held.id))
        await consuming.until_done(4)
        took = time.monotonic() - failed_at
        assert ("may have lost starts" in explained) == loses
        assert (2 < took < BACK + 3) if loses else took < BACK, took
    await consuming.close()
    proxy.close()


def until_in_step(primary: RedisServer, replica: RedisServer) -> None:
    """The replica has everything that the primary was told."""
    deadline = time.monotonic() + 10
    while offset(primary, "master_repl_offset") != offset(replica, "slave_repl_offset") or b":up" not in link(replica):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def offset(server: RedisServer, name: str) -> bytes:
    return server.ask("INFO", "replication").partition(name.encode() + b":")[2].split(b"\r\n")[0]


def link(replica: RedisServer) -> bytes:
    return replica.ask("INFO", "replication").partition(b"master_link_status")[2].split(b"\r\n")[0]


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
