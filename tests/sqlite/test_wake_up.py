"""Waking sleepers of other processes: by a datagram beside the file, and without it by a rare look at the file."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline import Concurrency, JobNotFound, Queue, Worker
from paceline.stores.interface import Finish, Outcome
from paceline.stores.sqlite import listening as channel

from .helpers import Done, Process, eventually, run_python, start, working

SOON = 2.0
"""Far below the 30 s that a worker sleeps at most, far above what a wake-up takes on a busy machine."""


@pytest.fixture
def path(short_path: Path) -> Path:
    return short_path


def sockets(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir() if found.name.endswith(".sock"))


async def sleeping() -> None:
    """Let workers come to rest."""
    await asyncio.sleep(0.15)


ADD = """
import asyncio, sys
from paceline import Queue, open_store
async def main():
    store = open_store("sqlite:///" + sys.argv[1], durability="normal")
    await Queue("line", store=store).add("work", "from afar", job_id="afar")
    await store.close()
asyncio.run(main())
"""

WORK = """
import asyncio, sys, threading
from paceline import Worker, open_store
async def handler(job):
    if job.data == "long":
        await asyncio.sleep(60)
    return job.data
async def main():
    store = open_store("sqlite:///" + sys.argv[1], durability="normal")
    async with Worker("line", handler, store=store, concurrency=4):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    print("missed", store.missed_notifications, flush=True)
    await store.close()
asyncio.run(main())
"""


# told by message


async def test_an_enqueue_in_another_process_wakes_a_sleeping_worker(store, path):
    done = Done()
    async with working(Worker("line", done, store=store)):
        await sleeping()
        await run_python(ADD, path)
        await eventually(lambda: done.data, within=SOON)

    assert done.data == ["from afar"]
    assert store.missed_notifications == 0


async def test_another_handle_wakes_a_sleeping_worker_within_milliseconds(store, opener):
    done = Done()
    queue = Queue("line", store=opener())
    await queue.add("work", 0)
    waits: list[float] = []
    async with working(Worker("line", done, store=store)):
        for number in range(1, 9):
            await eventually(lambda number=number: len(done.data) == number)
            await asyncio.sleep(0.02)
            await queue.add("work", number)
            added = time.monotonic()
            await eventually(lambda number=number: len(done.data) == number + 1)
            waits.append(done.at[-1] - added)

    assert sorted(waits)[3] < channel.POLL_EVERY / 2, "found by looking, not told"
    assert store.missed_notifications == 0


async def test_nothing_is_missed_when_everything_was_told(opener):
    one, two = opener(), opener()
    done = Done()
    queues = [Queue("line", store=store) for store in (one, two)]
    async with working(*(Worker("line", done, store=store, concurrency=3) for store in (one, two))):
        for number in range(30):
            job = await queues[number % 2].add("work", number)
            if number % 5 == 0:
                assert await job.result(timeout=10) == number
                await asyncio.sleep(0.05)
        await eventually(lambda: len(done.data) == 30)
        await asyncio.sleep(channel.POLL_EVERY * 1.5)

    assert (one.missed_notifications, two.missed_notifications) == (0, 0)


async def test_what_happened_before_a_process_came_is_not_missed_notifications(opener, often):
    old = opener()
    for number in range(5):
        await Queue("line", store=old).add("work", number)
    await old.close()
    new = opener()
    ear = new.listen(["line"], "worker")
    await new.open()
    await asyncio.sleep(channel.POLL_EVERY * 3)

    assert new.missed_notifications == 0
    ear.close()


async def test_a_result_that_another_process_makes_is_waited_for(store, path):
    queue = Queue("line", store=store)
    with Process(WORK, path) as process:
        assert await process.says() == "ready"
        jobs = [await queue.add("work", number) for number in range(3)]
        results = await asyncio.gather(*(job.result(timeout=10) for job in jobs))
        process.tell()
        said = await process.ends()

    assert results == [0, 1, 2]
    assert said.strip() == "missed 0"
    assert store.missed_notifications == 0


async def test_a_cancel_reaches_a_handler_in_another_process(store, path):
    queue = Queue("line", store=store)
    with Process(WORK, path) as process:
        assert await process.says() == "ready"
        job = await queue.add("work", "long")

        async def active() -> bool:
            return (await job.refresh()).state == "active"

        await eventually(active)
        asked = time.monotonic()
        await job.cancel()

        async def cancelled() -> bool:
            return (await job.refresh()).state == "cancelled"

        await eventually(cancelled, within=5)  # a heartbeat alone would find it after ten seconds
        assert time.monotonic() - asked < 5
        process.tell()
        await process.ends()


async def test_a_slot_that_another_process_frees_wakes_who_waits_for_it(store, opener):
    other = opener()
    queue = Queue("line", store=store, limits=[Concurrency(1)])
    await queue.add_many([("work", 1), ("work", 2)])
    (held,) = await start(other)
    done = Done()
    async with working(Worker("line", done, store=store)):
        await sleeping()
        assert done.data == []
        await other.finish([Finish(id=held.id, fence=held.fence, outcome=Outcome.COMPLETED)])
        await eventually(lambda: done.data, within=SOON)

    assert done.data == [2]


async def test_a_job_that_is_removed_elsewhere_ends_the_wait_for_it(store, opener):
    job = await Queue("line", store=store).add("work")
    waiting = asyncio.create_task(job.result(timeout=20))
    await sleeping()

    await (await Queue("line", store=opener()).get(job.id)).remove()

    with pytest.raises(JobNotFound):
        await asyncio.wait_for(waiting, SOON)


async def test_a_process_that_listens_already_hears_of_the_end_that_it_begins_to_wait_for(store, opener):
    job = await Queue("line", store=store).add("work")
    listener = store.listen(["line"], "worker")
    await sleeping()
    waiting = asyncio.create_task(job.result(timeout=20))
    await sleeping()
    other = opener()
    (held,) = await start(other)

    await other.finish([Finish(id=held.id, fence=held.fence, outcome=Outcome.COMPLETED, result=b"null")])

    await asyncio.wait_for(waiting, SOON)
    assert store.missed_notifications == 0
    listener.close()


async def test_others_are_notified_once_it_is_written(store, opener, program, monkeypatch):
    """Whoever is notified looks at once, and what it does not find it is not notified of again."""
    listening = opener()
    listener = listening.listen(["line"], "worker")
    await listening.open()
    await sleeping()
    found: list[int] = []
    tell = channel.Listening.notify

    def look_and_tell(self: channel.Listening, *news: Any) -> None:
        (number,) = program().execute("SELECT count(*) FROM paceline_job").fetchone()
        found.append(number)
        tell(self, *news)

    monkeypatch.setattr(channel.Listening, "notify", look_and_tell)
    for _ in range(3):
        await Queue("line", store=store).add("work")

    assert found == [1, 2, 3]
    listener.close()


async def test_more_news_than_fit_into_a_message_arrive_all_the_same(store, opener):
    queue = Queue("line", store=store)
    jobs = await queue.add_many([("work", number, {"job_id": f"{number:0100d}"}) for number in range(600)])
    results = asyncio.gather(*(job.result(timeout=10) for job in jobs[::50]))
    await sleeping()
    other = opener()
    held = await start(other, 600)
    await other.finish(
        [Finish(id=each.id, fence=each.fence, outcome=Outcome.COMPLETED, result=each.data) for each in held]
    )

    assert await asyncio.wait_for(results, SOON) == list(range(0, 600, 50))


# the socket


async def test_the_socket_lies_beside_the_file_and_goes_when_the_store_closes(store, path):
    assert sockets(path.parent) == [], "nobody listens yet"
    ear = store.listen(["line"], "worker")
    await store.open()
    assert len(sockets(path.parent)) == 1
    assert sockets(path.parent)[0].startswith("jobs.db-")

    ear.close()
    await store.close()

    assert sorted(found.name for found in path.parent.iterdir()) == ["jobs.db"]


@pytest.mark.timeout(30)
async def test_a_store_closes_when_nobody_reads_its_socket_any_more_and_it_is_full(store):
    ear = store.listen(["line"], "worker")
    await store.open()
    address, thread = store._listening._address, store._listening._thread
    store._listening._stop.set()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
        mouth.setblocking(False)
        mouth.sendto(b"{}", address)
        thread.join(5)
        with pytest.raises(BlockingIOError):
            while True:
                mouth.sendto(b"{}", address)

    ear.close()
    await store.close()

    assert not os.path.exists(address)


async def test_who_only_adds_needs_no_socket(store, path):
    await Queue("line", store=store).add("work")

    assert sockets(path.parent) == []


async def test_the_socket_of_a_dead_process_is_cleaned_up_by_whoever_finds_it(store, path):
    queue = Queue("line", store=store)
    with Process(WORK, path) as process:
        assert await process.says() == "ready"
        assert len(sockets(path.parent)) == 1
        process.kill()
    assert len(sockets(path.parent)) == 1

    await queue.add("work")
    await queue.counts()

    await eventually(lambda: sockets(path.parent) == [], within=SOON)
    (ears_left,) = store._writer._db.execute("SELECT count(*) FROM paceline_listener").fetchone()
    assert ears_left == 0


async def test_a_dead_process_does_not_keep_the_living_from_being_told(store, path, opener):
    with Process(WORK, path) as process:
        assert await process.says() == "ready"
        process.kill()
    done = Done()
    async with working(Worker("line", done, store=store)):
        await sleeping()
        await Queue("line", store=opener()).add("work", 1)
        await eventually(lambda: done.data, within=SOON)

    assert store.missed_notifications == 0


async def test_a_path_that_is_too_long_for_a_socket_works_all_the_same(opener, tmp_path):
    folder = tmp_path / ("long " * 20) / ("longer " * 20)
    folder.mkdir(parents=True)
    one, two = opener(folder / "jobs.db"), opener(folder / "jobs.db")
    done = Done()

    async with working(Worker("line", done, store=one)):
        address = Path(one._listening._address)
        await sleeping()
        await Queue("line", store=two).add("work", 1)
        await eventually(lambda: done.data, within=SOON)
    assert (one.missed_notifications, address.exists(), sockets(folder)) == (0, True, [])

    await one.close()
    assert not address.exists()


async def end(store: Any, job: Any) -> None:
    await store.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED, result=b"null")])


async def test_a_socket_that_somebody_removed_is_made_anew(store, path, opener, often, program):
    """Whoever waits for a result hears of it, although nobody could tell; from then on everybody is told again."""
    other = opener()
    await Queue("line", store=other).add_many([("work", None)] * 3)
    jobs = await start(other, 2)
    waiting = [asyncio.create_task(store.finished(job.id, None)) for job in jobs]
    await eventually(lambda: sockets(path.parent))
    before = sockets(path.parent)
    await sleeping()

    (path.parent / before[0]).unlink()
    await end(other, jobs[0])
    await asyncio.wait_for(waiting[0], SOON)
    await eventually(lambda: sockets(path.parent) not in ([], before))
    listed = program()
    others = "SELECT 1 FROM paceline_listener WHERE waits AND address NOT LIKE ?"
    await eventually(lambda: listed.execute(others, (f"%{before[0]}",)).fetchone())
    await sleeping()
    missed = store.missed_notifications
    await end(other, jobs[1])
    await asyncio.wait_for(waiting[1], SOON)

    assert store.missed_notifications == missed


async def test_who_may_not_write_to_a_socket_takes_it_from_nobody(store, path, opener, monkeypatch):
    class Forbidden(socket.socket):
        def sendto(self, *message: Any) -> int:
            raise PermissionError(errno.EACCES, "not yours")

    done = Done()
    async with working(Worker("line", done, store=store)):
        await sleeping()
        may_not, may = opener(), opener()
        monkeypatch.setattr(channel, "socket", without(socket=Forbidden))
        await Queue("line", store=may_not).add("work", 1)
        await eventually(lambda: done.data == [1], within=SOON)
        monkeypatch.setattr(channel, "socket", socket)
        await sleeping()
        missed = store.missed_notifications
        await Queue("line", store=may).add("work", 2)
        await eventually(lambda: done.data == [1, 2], within=SOON)

        assert (store.missed_notifications, len(sockets(path.parent))) == (missed, 1)


async def test_strange_messages_are_ignored(store, opener):
    done = Done()
    queue = Queue("line", store=opener())
    async with working(Worker("line", done, store=store)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            for message in (b"", b"hello", b"[1]", b"null", b"7", b'{"number": "x"}', b'{"queues": 5}', b"\xff\xfe"):
                stranger.sendto(message, store._listening._address)
            await asyncio.sleep(0.1)
            for number in range(5):
                stranger.sendto(b"[]", store._listening._address)
                await queue.add("work", number)
                stranger.sendto(b"no", store._listening._address)
        await eventually(lambda: len(done.data) == 5, within=SOON)


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """So many descriptors are in use that new ones are above 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1200 if hard == resource.RLIM_INFINITY else min(hard, 1200)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    opened: list[int] = []
    while not opened or opened[-1] < min(wanted, 1200) - 100:
        opened.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_program_with_more_than_a_thousand_open_files_is_woken_too(opener, many_open_files):
    one, two = opener(), opener()
    done = Done()
    async with working(Worker("line", done, store=one)):
        await sleeping()
        await Queue("line", store=two).add("work", 1)
        await eventually(lambda: done.data, within=SOON)

    assert one.missed_notifications == 0


# without it


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is looked at more often than usual, to save time."""
    monkeypatch.setattr(channel, "POLL_EVERY", 0.05)


def without(*names: str, **other: Any) -> SimpleNamespace:
    """The socket module of a machine that lacks something."""
    there = {name: getattr(socket, name) for name in dir(socket) if name not in names}
    return SimpleNamespace(**there | other)


async def fallback_works(store: Any, opener: Any) -> None:
    """A worker is woken, and a result arrives, by looks at the file only."""
    done, free = Done(), asyncio.Event()
    other = opener()
    queue = Queue("line", store=other)

    async def handler(job: Any) -> Any:
        await free.wait()
        return await done(job)

    async with working(Worker("line", handler, store=store)):
        await sleeping()
        job = await queue.add("work", 1)
        # The job ends after somebody has begun to wait for that, and not before.
        result = asyncio.create_task(job.result(timeout=5))
        await sleeping()
        free.set()
        assert await result == 1
        await sleeping()
        await queue.add("work", 2)
        await eventually(lambda: len(done.data) == 2, within=SOON)
    assert store.missed_notifications >= 1
    assert other.missed_notifications >= 1


async def test_without_unix_sockets_looking_at_the_file_is_enough(opener, monkeypatch, path, often):
    monkeypatch.setattr(channel, "socket", without("AF_UNIX"))

    await fallback_works(opener(), opener)

    assert sockets(path.parent) == []


async def test_without_unix_sockets_a_result_is_found_while_other_jobs_are_left(opener, monkeypatch, often):
    monkeypatch.setattr(channel, "socket", without("AF_UNIX"))
    store, other = opener(), opener()
    await Queue("line", store=other).add_many([("work", None)] * 2)
    (job,) = await start(other)
    waiting = asyncio.create_task(store.finished(job.id, None))
    await sleeping()

    await end(other, job)

    await asyncio.wait_for(waiting, SOON)


async def test_where_no_socket_can_be_made_looking_at_the_file_is_enough(opener, monkeypatch, path, often):
    class Unbindable(socket.socket):
        def bind(self, address: Any) -> None:
            raise PermissionError(errno.EACCES, "no sockets here")

    monkeypatch.setattr(channel, "socket", without(socket=Unbindable))

    await fallback_works(opener(), opener)

    assert sockets(path.parent) == []


async def test_a_message_that_is_lost_is_found_by_looking(opener, monkeypatch, often):
    class Silent(socket.socket):
        def sendto(self, *message: Any) -> int:
            return 0

    monkeypatch.setattr(channel, "socket", without(socket=Silent))

    await fallback_works(opener(), opener)


async def test_a_message_that_cannot_be_sent_does_not_fail_what_was_written(opener, monkeypatch, store):
    listening = opener()
    ear = listening.listen(["line"], "worker")
    await listening.open()
    queue = Queue("line", store=store)
    await queue.add("work", 0)

    def full(*kind: Any) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    store._listening._sender, mouth = None, store._listening._sender
    monkeypatch.setattr(channel, "socket", without(socket=full))
    jobs = await asyncio.gather(*(queue.add("work", number) for number in range(1, 4)))
    monkeypatch.setattr(channel, "socket", socket)
    if mouth is not None:
        mouth.close()
    ear.close()

    assert [job.state for job in jobs] == ["waiting"] * 3
    assert (await queue.counts())["waiting"] == 4


async def test_an_ear_that_is_too_full_is_not_taken_for_dead(opener, store):
    """A process that hears nothing for a while (stopped, or busy) is still there."""
    listening = opener()
    ear = listening.listen(["line"], "worker")
    await listening.open()
    await eventually(lambda: listening._listening._address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        address = f"{store.path}-deaf.sock"
        deaf.bind(address)
        store._writer._db.execute("INSERT INTO paceline_listener VALUES (?, 1, 0)", (address,))
        store._unit.forget()
        queue = Queue("line", store=store)
        for number in range(50):
            await asyncio.wait_for(queue.add("work", number), 5)
        assert os.path.exists(address)
    os.unlink(address)
    ear.close()
