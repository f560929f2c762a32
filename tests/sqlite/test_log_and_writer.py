"""The write-ahead log is folded, callers share transactions, closing ends well."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paceline import Group, GroupFull, JobNotFound, Queue, StoreUnavailable, Worker
from paceline.stores.sqlite import folding

from .helpers import Done, eventually, start, working


@pytest.fixture
def path(short_path: Path) -> Path:
    return short_path


def log_size(path: Path) -> int:
    """Bytes in the write-ahead log."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


async def add_one_by_one(store: Any, number: int, data: object = None) -> None:
    queue = Queue("line", store=store)
    for _ in range(number):
        await queue.add("work", data)


class Counted:
    """A connection that writes down its statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.said: list[str] = []

    def execute(self, sql: str, *values: Any) -> Any:
        self.said.append(sql)
        return self._connection.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def count(self, begins: str) -> int:
        return sum(each.startswith(begins) for each in self.said)


@pytest.fixture
def said(store) -> Counted:
    """What the store says to SQLite."""
    counted = Counted(store._writer._db)
    store._writer._db = counted
    return counted


# the write-ahead log


async def test_the_log_is_folded_into_the_file_when_it_is_long(store, path, monkeypatch):
    monkeypatch.setattr(folding, "LOG_PAGES", 64)
    sizes = []
    for _ in range(200):
        await add_one_by_one(store, 1, "x" * 500)
        sizes.append(log_size(path))

    folded = [after for before, after in pairwise(sizes) if after < before]
    assert folded, "the log only grew"
    assert max(sizes) < 64 * 4096 * 20
    assert (await Queue("line", store=store).counts())["waiting"] == 200


async def test_a_short_log_is_left_alone(store, path, said):
    await add_one_by_one(store, 130)

    assert said.count("PRAGMA wal_checkpoint") == 0
    assert log_size(path) > 0


async def test_only_one_process_folds_at_a_time(store, opener, path, monkeypatch, said):
    monkeypatch.setattr(folding, "LOG_PAGES", 1)
    other = opener()
    await other.open()
    now = store.clock.now()
    other._writer._db.execute("UPDATE paceline_file SET folding_until = ?", (now + folding.FOLDING,))
    await add_one_by_one(store, 130)
    assert said.count("PRAGMA wal_checkpoint") == 0, "another process is at it"

    other._writer._db.execute("UPDATE paceline_file SET folding_until = ?", (now - 1,))
    await add_one_by_one(store, 64)
    await store.close()  # the log is folded by the writer's thread, after the add has returned
    assert said.count("PRAGMA wal_checkpoint") == 1
    (left,) = other._writer._db.execute("SELECT folding_until FROM paceline_file").fetchone()
    assert left <= now, "and the next one may come"


async def test_a_process_that_died_while_folding_does_not_stop_the_others_for_long(store, path, monkeypatch, said):
    monkeypatch.setattr(folding, "LOG_PAGES", 1)
    store._writer._db.execute("UPDATE paceline_file SET folding_until = ?", (store.clock.now() + 200_000,))
    await asyncio.sleep(0.25)

    await add_one_by_one(store, 64)

    await store.close()  # the log is folded by the writer's thread, after the add has returned
    assert said.count("PRAGMA wal_checkpoint") == 1


async def test_somebody_who_reads_for_a_long_time_does_not_make_writers_wait(store, program, monkeypatch):
    monkeypatch.setattr(folding, "LOG_PAGES", 1)
    await add_one_by_one(store, 10)
    reader = program()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM paceline_job").fetchone()
    began = time.monotonic()

    try:
        await asyncio.wait_for(add_one_by_one(store, 130), 5)
    finally:
        reader.rollback()

    assert time.monotonic() - began < 5


async def test_after_closing_the_log_is_gone_and_everything_is_in_the_file(store, path):
    await add_one_by_one(store, 20)
    await store.close()

    assert os.listdir(path.parent) == ["jobs.db"]
    assert (await Queue("line", store=store).counts())["waiting"] == 20


# sharing transactions


async def test_steps_of_many_callers_share_one_transaction(store, said):
    queue = Queue("line", store=store)
    await queue.add("work")
    before = said.count("COMMIT")

    jobs = await asyncio.gather(*(queue.add("work", number) for number in range(200)))

    assert said.count("COMMIT") - before < 40
    assert len({job.id for job in jobs}) == 200
    assert [job.data for job in await queue.list(limit=1000)] == [None, *range(200)]


async def test_looking_writes_nothing(store, said):
    queue = Queue("line", store=store)
    job = await queue.add("work")
    before = said.count("BEGIN IMMEDIATE")

    await asyncio.gather(queue.counts(), queue.list(), queue.get(job.id), queue.starts(), store.limits())

    assert said.count("BEGIN IMMEDIATE") == before


async def test_a_step_that_is_refused_does_not_fail_its_neighbours(store):
    queue = Queue("line", store=store)
    await queue.add("work", group="full")
    answers = await asyncio.gather(
        queue.add("work", 1),
        queue.add("work", 2, group=Group("full", max_size=1)),
        queue.add("work", 3),
        (await queue.add("work")).remove(),
        queue.explain("nobody"),
        queue.add("work", 4),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [GroupFull, JobNotFound]
    assert [job.data for job in await queue.list()] == [None, 1, 3, 4]


async def test_a_step_that_breaks_does_not_fail_its_neighbours_and_leaves_nothing(store):
    def breaks(unit: Any) -> None:
        unit.state.queue("half made")
        raise ZeroDivisionError("a fault")

    queue = Queue("line", store=store)
    await queue.add("work", 0)
    release = await _occupied(store)
    neighbours = [asyncio.create_task(queue.add("work", number)) for number in (1, 2)]
    broken = asyncio.create_task(store._writer.run(breaks, writes=True))
    neighbours += [asyncio.create_task(queue.add("work", number)) for number in (3, 4)]
    await asyncio.sleep(0.05)
    release.set()

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(broken, 10)
    await asyncio.gather(*neighbours)
    assert [job.data for job in await queue.list()] == [0, 1, 2, 3, 4]
    assert sum((await queue.counts()).values()) == 5


async def _occupied(store: Any) -> Any:
    """The writer is busy until the event is set; what is asked meanwhile comes into one transaction."""
    release, entered = threading.Event(), threading.Event()

    def occupy(state: Any) -> None:
        entered.set()
        assert release.wait(10)

    store._writer.post(occupy, writes=False)
    await eventually(entered.is_set)
    return release


async def test_a_caller_who_gives_up_does_not_disturb_the_others(store):
    queue = Queue("line", store=store)
    await queue.add("work", 0)
    release = await _occupied(store)
    tasks = [asyncio.create_task(queue.add("work", number)) for number in (1, 2, 3)]
    await asyncio.sleep(0.02)
    tasks[1].cancel()
    await asyncio.sleep(0.02)
    release.set()

    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[1], asyncio.CancelledError)
    assert {0, 1, 3} <= {job.data for job in await queue.list()}


# closing


async def test_closing_waits_for_what_was_asked(store):
    queue = Queue("line", store=store)
    await queue.add("work", 0)
    release = await _occupied(store)
    asked = [asyncio.create_task(queue.add("work", number)) for number in range(1, 20)]
    await asyncio.sleep(0.02)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0.05)
    assert not closing.done()

    release.set()
    await asyncio.wait_for(closing, 10)
    assert len(await asyncio.gather(*asked)) == 19
    assert (await queue.counts())["waiting"] == 20


async def test_closing_ends_even_if_somebody_asks_for_more_meanwhile(store):
    queue = Queue("line", store=store)
    await queue.add("work", 0)
    release = await _occupied(store)
    began = time.monotonic()
    closing = [asyncio.create_task(store.close()) for _ in range(2)]
    await asyncio.sleep(0.05)
    late = [asyncio.create_task(queue.add("work", number)) for number in range(1, 4)]
    await asyncio.sleep(0.05)
    assert time.monotonic() - began < 5, "the event loop stood still"
    release.set()

    await asyncio.wait_for(asyncio.gather(*closing), 10)
    await asyncio.wait_for(asyncio.gather(*late), 10)
    await asyncio.wait_for(store.close(), 10)
    assert (await queue.counts())["waiting"] == 4


async def test_closing_twice_and_closing_what_was_never_opened_is_nothing(opener, path):
    store = opener()
    await store.close()
    await store.close()
    assert os.listdir(path.parent) == []

    await store.open()
    await store.close()
    await store.close()


async def test_using_a_closed_store_opens_it_again(store):
    queue = Queue("line", store=store)
    for number in range(3):
        await queue.add("work", number)
        await store.close()

    assert [record.data for record in await start(store, 5)] == [b"0", b"1", b"2"]
    done = Done()
    async with working(Worker("other", done, store=store)):
        await Queue("other", store=store).add("work", "again")
        await eventually(lambda: done.data)


async def test_closing_ends_the_wait_for_a_result(store):
    job = await Queue("line", store=store).add("work")
    waiting = asyncio.create_task(job.result(timeout=20))
    await asyncio.sleep(0.1)

    await store.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await asyncio.wait_for(waiting, 5)


async def test_no_thread_and_no_descriptor_is_left_after_closing(opener):
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    store = opener()
    done = Done()
    await Queue("line", store=store).add("work")
    await store.close()
    threads, files = threading.active_count(), open_files()
    for _ in range(3):
        async with working(Worker("line", done, store=store)):
            job = await Queue("line", store=store).add("work", 1)
            assert await job.result(timeout=10) == 1
        await store.close()

    assert threading.active_count() <= threads + 1  # the loop's pool may have one more
    assert open_files() <= files + 1


async def test_one_store_serves_event_loops_in_several_threads(store):
    def other_loop(number: int) -> str:
        async def add() -> str:
            return (await Queue("line", store=store).add("work", number)).id

        return asyncio.run(add())

    ids = await asyncio.gather(*(asyncio.to_thread(other_loop, number) for number in range(8)))

    assert len(set(ids)) == 8
    assert (await Queue("line", store=store).counts())["waiting"] == 8
