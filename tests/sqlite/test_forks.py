"""Forks: a child opens the file for itself, and no connection of ours crosses the fork."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .helpers import run_python


@pytest.fixture
def path(short_path: Path) -> Path:
    return short_path


FORK = """
import asyncio, os, sqlite3, sys, threading, time
from paceline import Queue, Worker, open_store
from paceline.stores.sqlite import writer

store = open_store("sqlite:///" + sys.argv[1], durability="normal")
queue = Queue("line", store=store)

def child(work):
    \"\"\"Do this in a fork, in an event loop of its own.\"\"\"
    pid = os.fork()
    if pid:
        return pid
    def run():
        asyncio.run(work())
        os._exit(0)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(8)
    os._exit(7)

async def gone(pid):
    return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])

async def main():
    SCENE

asyncio.run(asyncio.wait_for(main(), 14))
"""


async def forked(path: Path, scene: str) -> list[str]:
    return (await run_python(FORK.replace("SCENE", scene.strip()), path)).split()


async def test_a_fork_opens_the_file_for_itself_and_both_go_on(path):
    said = await forked(
        path,
        """
    await queue.add("work", 0)
    mine = store._writer._db
    async def work():
        await queue.add("work", "child")
        assert store._writer._db is not mine
        await store.close()
    pids = [child(work) for _ in range(3)]
    for number in range(20):
        await queue.add("work", number)
    print([await gone(pid) for pid in pids] == [0, 0, 0])
    print((await queue.counts())["waiting"], store._writer._db is not mine)
    await store.close()
""",
    )

    assert said == ["True", "24", "True"]


async def test_a_fork_in_the_middle_of_a_transaction_is_not_stuck(path):
    said = await forked(
        path,
        """
    await queue.add("work", 0)
    entered, release = threading.Event(), threading.Event()
    writer.FORK_WAIT = 0.1
    def occupy(state):
        entered.set()
        release.wait(10)
    store._writer.post(occupy, writes=False)
    await asyncio.to_thread(entered.wait, 5)
    async def work():
        await queue.add("work", "child")
    pid = child(work)
    await asyncio.sleep(0.1)
    release.set()
    print(await gone(pid), (await queue.counts())["waiting"])
    await store.close()
""",
    )

    assert said[-2:] == ["0", "2"]
    assert "before you fork" in " ".join(said), "the child has what its parent opened, and says so"


async def test_a_fork_wakes_the_worker_of_its_parent_and_leaves_its_socket_alone(path):
    said = await forked(
        path,
        """
    done = []
    async def handler(job):
        done.append(job.data)
    async with Worker("line", handler, store=store):
        await asyncio.sleep(0.3)
        async def work():
            await queue.add("work", "child")
            await store.close()
        pid = child(work)
        print(await gone(pid))
        while not done:
            await asyncio.sleep(0.01)
        print(len([name for name in os.listdir(os.path.dirname(sys.argv[1])) if name.endswith(".sock")]))
    print(store.missed_notifications)
    await store.close()
""",
    )

    assert said == ["0", "1", "0"]
    assert os.listdir(path.parent) == ["jobs.db"]


async def test_a_worker_may_run_in_a_fork(path):
    said = await forked(
        path,
        """
    job = await queue.add("work", 41)
    async def work():
        async def handler(job):
            return job.data + 1
        await Worker("line", handler, store=store).run(until_empty=True)
        await store.close()
    pid = child(work)
    print(await job.result(timeout=8), await gone(pid))
    await store.close()
""",
    )

    assert said == ["42", "0"]


async def test_what_a_child_adds_is_kept_when_its_parent_closes_first(path):
    """The last one who closes removes the log: a child without locks of its own would go on writing to nowhere."""
    said = await forked(
        path,
        """
    await queue.add("work", "parent")
    closed, told = os.pipe()
    async def work():
        await queue.add("work", "before")
        await asyncio.to_thread(os.read, closed, 1)
        for number in range(10):
            await queue.add("work", number)
    pid = child(work)
    await asyncio.sleep(0.3)
    await store.close()
    os.write(told, b"x")
    print(await gone(pid), (await queue.counts())["waiting"])
    db = sqlite3.connect(sys.argv[1])
    print(*db.execute("SELECT count(*) FROM paceline_job").fetchone())
    print(*db.execute("PRAGMA integrity_check").fetchone())
    await store.close()
""",
    )

    assert said == ["0", "12", "12", "ok"]


async def test_a_worker_that_sleeps_goes_on_after_its_process_forked(path):
    said = await forked(
        path,
        """
    done = []
    async def handler(job):
        done.append(job.data)
    async def work():
        await queue.add("work", "child")
    async with Worker("line", handler, store=store):
        await asyncio.sleep(0.3)  # it sleeps, and looks at the file now and then
        pids = [child(work) for _ in range(3)]
        print([await gone(pid) for pid in pids] == [0, 0, 0])
        await queue.add("work", "parent")
        while len(done) < 4:
            await asyncio.sleep(0.01)
    print(store.missed_notifications)
    await store.close()
""",
    )

    assert said == ["True", "0"]


async def test_a_fork_does_not_wait_for_a_file_that_somebody_else_holds(path):
    said = await forked(
        path,
        """
    await queue.add("work", 0)
    mine = sqlite3.connect(sys.argv[1])
    mine.execute("BEGIN IMMEDIATE")
    waits = asyncio.create_task(queue.add("work", 1))
    await asyncio.sleep(0.2)
    async def work():
        pass
    began = time.monotonic()
    pid = child(work)
    print(time.monotonic() - began < 1, await gone(pid), waits.done())
    mine.rollback()
    await waits
    print((await queue.counts())["waiting"])
    await store.close()
""",
    )

    assert said == ["True", "0", "False", "2"]


async def test_a_connection_of_the_user_that_crosses_a_fork_is_warned_of_where_the_store_is_used(path):
    said = await forked(
        path,
        """
    await queue.add("work", 0)
    mine = sqlite3.connect(sys.argv[1])
    mine.execute("SELECT count(*) FROM paceline_job").fetchone()
    async def look():
        print((await queue.counts())["waiting"], flush=True)
    await gone(child(look))
    mine.close()
    await gone(child(look))
    await store.close()
""",
    )

    assert [word for word in said if word.isdigit()] == ["1", "1"]
    assert " ".join(said).count("was open when this process was forked") == 1
