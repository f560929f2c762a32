"""Through a real PgBouncer in transaction mode, where nothing of a session is kept: `make test-servers`."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import Concurrency, Job, Limit, Queue, Rate, Worker
from paceline.stores import open_store

from ..servers.postgres import Server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def bouncer(tmp_path: Path) -> Iterator[str]:
    """The URL of a server behind a PgBouncer that hands out two connections, a transaction at a time."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    port = free_port()
    with Server() as server:
        settings = server.folder / "pgbouncer.ini"
        (server.folder / "users").write_text('"postgres" ""\n')
        settings.write_text(
            f"[databases]\npostgres = host={server.folder} dbname=postgres user=postgres\n"
            "[pgbouncer]\npool_mode = transaction\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nauth_file = {server.folder / 'users'}\n"
            "default_pool_size = 2\nserver_reset_query_always = 1\nserver_reset_query = DISCARD ALL\n"
            "unix_socket_dir =\n"
        )
        identity = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen([program, str(settings)], stdout=log, stderr=log, **identity)  # type: ignore[call-overload]
            try:
                wait_for(port, process, tmp_path / "log")
                yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
            finally:
                process.terminate()
                process.wait(10)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


async def test_jobs_run_under_their_limits_behind_a_transaction_pooler(bouncer: str) -> None:
    store = open_store(bouncer, pooler=True)
    limits = [Limit("rate", Rate(20, per="500ms")), Limit("slots", Concurrency(3))]
    queue = Queue("line", store=store, limits=limits)
    done: list[str] = []
    first, all_of_them = asyncio.Event(), asyncio.Event()

    async def handle(job: Job[None]) -> None:
        await asyncio.sleep(0.005)
        done.append(job.id)
        first.set()
        if len(done) == 81:
            all_of_them.set()

    async with Worker("line", handle, store=store, concurrency=10):
        await asyncio.sleep(0.5)
        added = time.monotonic()
        await queue.add("work", job_id="first")
        await asyncio.wait_for(first.wait(), 10)
        waited = time.monotonic() - added
        await queue.add_many([("work", None)] * 80)
        await asyncio.wait_for(all_of_them.wait(), 20)

    starts = sorted(start.at.timestamp() for start in await queue.starts())
    assert waited < 2.5
    assert all(later - earlier >= 0.5 for earlier, later in zip(starts, starts[20:], strict=False))
    await store.close()
