"""Connections of the user's own to the file: whatever they do beside workers and adders, nothing is lost or damaged."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline import Queue, StoreError, Worker
from paceline.stores.sqlite import about, connect, folding

from .helpers import Done, Process, eventually, run_python, working


@pytest.fixture
def path(short_path: Path) -> Path:
    return short_path


# which SQLite


ANOTHER = """
import asyncio, sqlite3, sys
from paceline import Queue, open_store

async def main():
    store = open_store("sqlite:///" + sys.argv[1])
    await Queue("line", store=store).add("work")
    print(type(store._writer._db) is sqlite3.Connection, "pysqlite3" in sys.modules)
    await store.close()

sys.path.insert(0, sys.argv[2])
asyncio.run(main())
"""


async def test_sqlite_is_that_of_the_standard_library_whatever_else_is_installed(path, tmp_path):
    """Two copies of SQLite in one process drop each other's locks: the user's is the standard library's."""
    package = tmp_path / "pysqlite3"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "dbapi2.py").write_text("from sqlite3.dbapi2 import *\nclass Connection(Connection): pass\n")

    assert (await run_python(ANOTHER, path, tmp_path)).split() == ["True", "False"]


async def test_a_library_that_is_too_old_is_refused_with_both_versions_and_what_to_do(opener, path, monkeypatch):
    monkeypatch.setattr(connect.sqlite3, "sqlite_version", "3.37.2")
    monkeypatch.setattr(connect.sqlite3, "sqlite_version_info", (3, 37, 2))

    with pytest.raises(StoreError, match=r"SQLite 3\.37\.2, and sqlite:/// needs 3\.38\.0 or newer: use a Python that"):
        await opener().open()

    assert not path.exists()


@pytest.mark.parametrize(
    ("version", "faulty"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_versions_that_can_damage_a_log_are_known(version, faulty):
    assert about.has_log_reset_fault(version) is faulty


@pytest.mark.parametrize(("version", "warned"), [("3.44.5", True), ("3.51.3", False)])
async def test_the_store_warns_of_a_version_that_can_damage_a_log(store, monkeypatch, version, warned):
    monkeypatch.setattr(about.sqlite3, "sqlite_version", version)

    found = await store.about()

    assert found.server == f"SQLite {version}"
    assert [text for text in found.warnings if "WAL-reset" in text and version in text] == list(found.warnings)
    assert bool(found.warnings) is warned


# beside workers and adders, in this process and in others


def read(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        db.execute("SELECT count(*) FROM orders, (SELECT count(*) FROM paceline_job)").fetchone()


def write(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db, db:
        db.execute("INSERT INTO orders VALUES (?)", (number,))


def write_and_undo(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        db.execute("INSERT INTO orders VALUES (?)", (number,))
        db.rollback()


def leave_open(path: Path, number: int) -> None:
    """A connection that is dropped in the middle of what it reads."""
    db = sqlite3.connect(path, timeout=30)
    db.execute("SELECT * FROM paceline_jobs").fetchone()
    del db


def fold(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def check(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def back_up(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as db, closing(sqlite3.connect(f"{path}-copy")) as copy:
        db.backup(copy)


USES: dict[str, Callable[[Path, int], None]] = {
    use.__name__: use for use in (read, write, write_and_undo, leave_open, fold, check, back_up)
}

OTHER = """
import asyncio, sys, threading
from pathlib import Path

sys.path.insert(0, sys.argv[3])
from paceline import Queue, open_store
from tests.sqlite.test_own_connections import USES, busy_with

async def main():
    path, name = Path(sys.argv[1]), sys.argv[2]
    store = open_store(f"sqlite:///{path}", durability="normal")
    queue = Queue("line", store=store)
    with busy_with(USES[name], path):
        for number in range(40):
            await queue.add("work", f"{name} {number}")
    await store.close()

asyncio.run(main())
"""


@contextmanager
def busy_with(use: Callable[[Path, int], None], path: Path) -> Iterator[list[int]]:
    """A thread that does the same again and again; what went wrong in it is raised at the end."""
    stop, done, errors = threading.Event(), [0], []

    def run() -> None:
        while not stop.is_set():
            try:
                use(path, done[0])
            except Exception as error:
                errors.append(error)
            done[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert done[0] > 0


def make_orders(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE orders (number)")


async def all_is_kept(path: Path, store: Any, accepted: int) -> None:
    """What this process counts, what another one finds, and what SQLite says of the file."""
    counts = await Queue("line", store=store).counts()
    assert counts["completed"] + counts["waiting"] == accepted
    script = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("SELECT count(*) FROM paceline_job").fetchone()[0], db.execute("PRAGMA integrity_check").fetchone()[0])
"""
    assert (await run_python(script, path)).split() == [str(accepted), "ok"]
    await store.close()
    assert (await run_python(script, path)).split() == [str(accepted), "ok"]


async def test_one_look_at_the_file_loses_nothing(store, path):
    queue = Queue("line", store=store)
    for number in range(10):
        await queue.add("work", number)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM paceline_job").fetchone() == (10,)
    for number in range(10):
        await queue.add("work", number)

    await all_is_kept(path, store, 20)


@pytest.mark.parametrize("name", USES)
async def test_a_connection_in_the_same_process_loses_nothing(store, path, name):
    make_orders(path)
    queue = Queue("line", store=store)
    done = Done()

    with busy_with(USES[name], path) as times:
        async with working(Worker("line", done, store=store, concurrency=4)):
            for number in range(60):
                await queue.add("work", number)
            await eventually(lambda: len(done.data) == 60 and times[0] > 5)
            await eventually(lambda: is_idle(queue))

    await all_is_kept(path, store, 60)


async def test_connections_in_several_processes_at_once_lose_nothing(store, path):
    make_orders(path)
    queue = Queue("line", store=store)
    done = Done()
    names = ["read", "write", "leave_open", "fold"]
    root = Path(__file__).parents[2]

    processes = [Process(OTHER, path, name, root) for name in names]
    try:
        async with working(Worker("line", done, store=store, concurrency=4)):
            with busy_with(read, path):
                for process in processes:
                    await process.ends()
            await eventually(lambda: len(done.data) == 40 * len(names))
            await eventually(lambda: is_idle(queue))
    finally:
        for process in processes:
            process.__exit__()

    assert sorted(done.data) == sorted(f"{name} {number}" for name in names for number in range(40))
    await all_is_kept(path, store, 40 * len(names))


async def is_idle(queue: Queue) -> bool:
    counts = await queue.counts()
    return not counts["active"] and not counts["waiting"]


async def test_jobs_added_within_own_transactions_and_plain_ones_side_by_side_are_all_kept(store, path, program):
    make_orders(path)
    queue = Queue("line", store=store)
    await queue.counts()
    mine = program(timeout=30)

    async def within() -> None:
        for number in range(60):
            mine.execute("INSERT INTO orders VALUES (?)", (number,))
            await queue.add("work", number, within=mine)
            await asyncio.sleep(0.001)
            (mine.rollback if number % 6 == 5 else mine.commit)()
            await asyncio.sleep(0.001)

    async def plain() -> None:
        for number in range(60):
            await queue.add("work", number)

    await asyncio.gather(within(), plain())

    assert mine.execute("SELECT count(*) FROM orders").fetchone() == (50,)
    mine.close()
    await all_is_kept(path, store, 110)


async def test_another_writer_waits_while_an_own_transaction_is_open(store, program):
    queue = Queue("line", store=store)
    await queue.counts()
    mine = program()
    await queue.add("work", "mine", within=mine)

    other = asyncio.create_task(queue.add("work", "other"))
    await asyncio.sleep(0.2)
    assert not other.done()
    assert (await asyncio.wait_for(queue.counts(), 5))["waiting"] == 0, "looking waits for nobody"
    mine.commit()
    await other

    assert [job.data for job in await queue.list()] == ["mine", "other"]


# busy for long


async def test_a_long_read_keeps_nobody_from_writing_and_the_log_is_folded_after_it(store, path, program, monkeypatch):
    monkeypatch.setattr(folding, "LOG_PAGES", 20)
    monkeypatch.setattr(folding, "FOLDING", 0)
    queue = Queue("line", store=store)
    await queue.add("work")
    reader = program()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM paceline_job").fetchone()

    asked = time.monotonic()
    for number in range(130):
        await queue.add("work", number)
    assert time.monotonic() - asked < 20
    assert reader.execute("SELECT count(*) FROM paceline_job").fetchone() == (1,)
    long = Path(f"{path}-wal").stat().st_size
    reader.rollback()
    for number in range(130):
        await queue.add("work", number)

    assert Path(f"{path}-wal").stat().st_size < long
    assert (await queue.counts())["waiting"] == 261
