"""A file that is deleted and made anew while programs live: their limits hold in the new one too."""

from __future__ import annotations

import asyncio
import os
import sqlite3

import pytest

from paceline import App, Concurrency, Job, Queue, Worker
from paceline.errors import StoreError
from paceline.job import NewJob
from paceline.limits import Limit
from paceline.stores import open_store
from paceline.stores.interface import Ask, WorkerRecord
from paceline.stores.sqlite import writer

TWO = Concurrency(2)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}?durability=normal"


async def replace(tmp_path, url: str) -> None:
    """Delete the file; another program makes it anew and adds jobs without knowing a limit."""
    for ending in ("", "-wal", "-shm"):
        (tmp_path / f"jobs.db{ending}").unlink(missing_ok=True)
    other = open_store(url)
    await Queue("line", store=other).add_many([("work", None)] * 30)
    await other.close()
    assert os.path.exists(tmp_path / "jobs.db")


async def test_limits_and_workers_are_declared_in_the_new_file(tmp_path, url, caplog):
    store = open_store(url)
    await store.set_limits([Limit("two", TWO, queues=["line"]), Limit("gone", TWO)])
    await store.register(WorkerRecord(id="w", queues=("line",)))
    await store.drop_limit("gone")
    await replace(tmp_path, url)
    claim = await store.claim(Ask(queues=("line",), slots=20, worker="w", lease=60_000_000))
    assert len(claim.jobs) == 2
    assert [limit.name for limit in await store.limits()] == ["two"]
    assert [worker.id for worker in await store.workers()] == ["w"]
    assert [record.message for record in caplog.records if "declared again" in record.message] == [
        f"{tmp_path / 'jobs.db'} was replaced by another file: the limits of this program are declared again"
    ]
    await store.close()


async def test_limits_hold_in_a_new_file_that_has_the_old_number_and_could_not_be_opened_at_once(
    tmp_path, url, monkeypatch
):
    """Numbers of deleted files are given again as soon as nobody has them open."""
    monkeypatch.setattr(writer, "identity", lambda path: (1, 1) if path.exists() else None)
    store = open_store(url)
    await store.set_limits([Limit("two", TWO, queues=["line"])])
    for ending in ("", "-wal", "-shm"):
        (tmp_path / f"jobs.db{ending}").unlink(missing_ok=True)

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(writer, "connect", refuse)
        await store.counts("line")
    await replace(tmp_path, url)

    claim = await store.claim(Ask(queues=("line",), slots=20, worker="w", lease=60_000_000))

    assert len(claim.jobs) == 2
    await store.close()


async def test_a_worker_that_lives_on_keeps_its_limits(tmp_path, url):
    store = open_store(url)
    app = App(store)
    app.limit("two", TWO, queues=["line"])
    running = most = done = 0
    first, all_of_them = asyncio.Event(), asyncio.Event()

    async def handler(job: Job[None]) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1
        first.set()
        if done == 31:
            all_of_them.set()

    async with asyncio.timeout(20), Worker("line", handler, store=store, concurrency=20):
        await app.queue("line").add("work")
        await first.wait()
        await replace(tmp_path, url)
        await all_of_them.wait()
    assert most == 2
    await store.close()


async def test_what_another_program_declared_in_the_new_file_stands(tmp_path, url):
    store = open_store(url)
    await store.set_limits([Limit("all", Concurrency(5), queues=["line"])])
    await replace(tmp_path, url)
    other = open_store(url)
    await other.set_limits([Limit("all", Concurrency(3), tasks=["work"])])
    await store.insert([NewJob("a", "line", "work")])
    assert await store.limits() == [Limit("all", Concurrency(3), tasks=["work"])]
    await store.close()
    await other.close()
