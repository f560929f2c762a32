"""What goes wrong with files: errors that say what to do, nothing lost, and workers that go on by themselves."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline import Queue, StoreError, StoreUnavailable, Worker
from paceline.stores.sqlite import connect, listening, writer

from .helpers import Done, eventually, run_python, start, working


async def broken(queue: Queue, kind: type[StoreError], *words: str) -> None:
    """Adding fails with an error of this kind that contains these words."""
    with pytest.raises(kind) as error:
        await queue.add("work", "x" * 2000)
    assert type(error.value) is kind
    for word in words:
        assert word in str(error.value)


def put_in_place(path: Path, other: Path) -> None:
    """Another file takes the place of this one, as a restored backup does."""
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    os.replace(other, path)


def backup(path: Path, to: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(to),))
    return to


async def goes_on(queue: Queue, store, trouble: Callable[[], object], repair: Callable[[], object], caplog) -> Done:
    """A worker runs before, meets the trouble, says so, and runs what is added after the repair."""
    done = Done()
    async with working(Worker("line", done, store=store)):
        await queue.add("work", "before")
        await eventually(lambda: "before" in done.data)
        trouble()
        with pytest.raises(StoreError):
            await queue.add("work", "meanwhile")
        store.sleepers.wake_all()
        await eventually(lambda: "cannot claim" in caplog.text)
        repair()
        await queue.add("work", "after")
        await eventually(lambda: "after" in done.data, within=10)
    assert done.data == ["before", "after"]
    return done


# places where no file can be


async def test_a_folder_that_does_not_exist_is_named_and_once_it_exists_all_is_well(opener, tmp_path):
    store = opener(tmp_path / "not" / "here" / "jobs.db")
    queue = Queue("line", store=store)

    await broken(queue, StoreUnavailable, str(tmp_path / "not" / "here"), "does not exist", "create it")
    assert os.listdir(tmp_path) == []

    (tmp_path / "not" / "here").mkdir(parents=True)
    await queue.add("work")
    assert (await queue.counts())["waiting"] == 1


async def test_a_path_that_is_a_folder_is_called_so(opener, path):
    path.mkdir()
    queue = Queue("line", store=opener())

    await broken(queue, StoreUnavailable, str(path), "it is a folder", "a file is needed")

    path.rmdir()
    await queue.add("work")


async def test_a_folder_that_is_a_file_is_an_error_in_words(opener, tmp_path):
    (tmp_path / "file").write_text("")

    await broken(Queue("line", store=opener(tmp_path / "file" / "jobs.db")), StoreUnavailable, "cannot be opened")


# rights: in a process that has no more of them than an ordinary user

ORDINARY = """
import asyncio, logging, os, sys
from paceline import Queue, Worker, open_store
from paceline.stores.sqlite import store as _  # everything is imported before the rights go
import paceline.stores.sqlite.listening
folder, = sys.argv[1:]
if os.getuid() == 0:
    os.chown(folder, 65534, 65534)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = os.path.join(folder, "jobs.db")
store = open_store("sqlite:///" + path, durability="normal")
queue = Queue("line", store=store)

async def says(call):
    try:
        print("fine", await call)
    except BaseException as error:
        print(type(error).__name__, error)

async def main():
    SCENE
    await store.close()

asyncio.run(asyncio.wait_for(main(), 15))
"""


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user can get to."""
    folder = Path(tempfile.mkdtemp(prefix="paceline-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


async def as_ordinary_user(folder: Path, scene: str) -> list[str]:
    """What a scene says when it is played by somebody without special rights."""
    return (await run_python(ORDINARY.replace("SCENE", scene.strip()), folder)).splitlines()


async def test_a_folder_in_which_nothing_may_be_made_is_an_error_until_it_may(shared_folder):
    said = await as_ordinary_user(
        shared_folder,
        """
    os.chmod(folder, 0o500)
    await says(queue.add("work"))
    os.chmod(folder, 0o700)
    await queue.add("work")
    await says(queue.counts())
""",
    )

    assert said[0].startswith("StoreUnavailable")
    assert "may not read or create it" in said[0]
    assert said[1].startswith("fine {'waiting': 1,")


async def test_a_file_that_may_not_be_read_is_an_error_until_it_may(shared_folder):
    said = await as_ordinary_user(
        shared_folder,
        """
    await queue.add("work")
    await store.close()
    os.chmod(path, 0)
    await says(queue.add("work"))
    os.chmod(path, 0o600)
    await queue.add("work")
    await says(queue.counts())
""",
    )

    assert said[0].startswith("StoreUnavailable")
    assert "may not read" in said[0]
    assert said[1].startswith("fine {'waiting': 2,")


async def test_a_file_that_may_only_be_read_is_an_error_until_it_may_be_written(shared_folder):
    said = await as_ordinary_user(
        shared_folder,
        """
    await queue.add("work")
    await store.close()
    os.chmod(path, 0o400)
    await says(queue.add("work"))
    os.chmod(path, 0o600)
    await queue.add("work")
    await says(queue.counts())
""",
    )

    assert said[0].startswith("StoreUnavailable")
    assert "read-only for this user" in said[0]
    assert said[1].startswith("fine {'waiting': 2,")


async def test_a_worker_goes_on_when_its_file_may_be_written_again(shared_folder):
    said = await as_ordinary_user(
        shared_folder,
        """
    done = []
    async def handler(job):
        done.append(job.data)
    async with Worker("line", handler, store=store):
        await queue.add("work", "before")
        while not done:
            await asyncio.sleep(0.01)
        other = os.path.join(folder, "other.db")
        import sqlite3
        db = sqlite3.connect(path); db.execute("VACUUM INTO ?", (other,)); db.close()
        for end in ("-wal", "-shm"):
            os.unlink(path + end)
        os.chmod(other, 0o400)
        os.replace(other, path)
        await says(queue.add("work", "meanwhile"))
        os.chmod(path, 0o600)
        await queue.add("work", "after")
        while "after" not in done:
            await asyncio.sleep(0.01)
    print(done)
""",
    )

    assert said[0].startswith("StoreUnavailable")
    assert said[-1] == "['before', 'after']"


# a full disk


class Disk:
    """The disk under a store: `fill()` leaves no page on it, `empty()` makes room."""

    def __init__(self, store, monkeypatch) -> None:
        self._writer = store._writer
        self._most = 0
        real = writer.connect

        def connect(*args, **options):
            connection = real(*args, **options)
            self._set(connection)
            return connection

        monkeypatch.setattr(writer, "connect", connect)

    def _set(self, connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {self._most or 1_000_000}").fetchall()

    def fill(self) -> None:
        (self._most,) = self._writer._db.execute("PRAGMA page_count").fetchone()
        self._set(self._writer._db)

    def empty(self) -> None:
        self._most = 0
        if self._writer._db is not None:
            self._set(self._writer._db)


@pytest.fixture
def disk(store, monkeypatch) -> Disk:
    return Disk(store, monkeypatch)


async def test_a_full_disk_is_an_error_that_keeps_what_was_there_and_goes_when_there_is_room(store, disk):
    queue = Queue("line", store=store)
    kept = [(await queue.add("work", number)).id for number in range(5)]
    disk.fill()

    with pytest.raises(StoreUnavailable, match=r"disk of .*jobs\.db is full: nothing was changed; free some space"):
        for _ in range(200):
            kept.append((await queue.add("work", "x" * 2000)).id)
    assert [job.id for job in await queue.list(limit=1000)] == kept

    disk.empty()
    kept.append((await queue.add("work", "x" * 2000)).id)
    assert [job.id for job in await queue.list(limit=1000)] == kept


async def test_on_a_full_disk_none_of_many_is_added_and_nothing_is_started(store, disk):
    queue = Queue("line", store=store)
    await queue.add("work")
    disk.fill()

    with pytest.raises(StoreUnavailable):
        await queue.add_many([("work", "x" * 2000)] * 100)

    disk.empty()
    assert (await queue.counts())["waiting"] == 1
    assert len(await start(store, 5)) == 1


FULL = """
import asyncio, os, resource, sys
from paceline import Queue, StoreUnavailable, Worker, open_store
store = open_store("sqlite:///" + sys.argv[1], durability="normal")
queue = Queue("line", store=store)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
added, done = [], []

async def handler(job):
    done.append(job.id)

async def main():
    async with Worker("line", handler, store=store, concurrency=10):
        added.append((await queue.add("work", "first")).id)
        while not done:
            await asyncio.sleep(0.01)
        room = os.path.getsize(sys.argv[1] + "-wal") + 400_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            for number in range(1000):
                added.append((await queue.add("work", "x" * 1000)).id)
        except StoreUnavailable as error:
            print(error)
        await asyncio.sleep(0.5)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        added.append((await queue.add("work", "last")).id)
        while len(done) < len(added):
            await asyncio.sleep(0.01)
    counts = await queue.counts()
    print(sorted(done) == sorted(added), len(added) > 3, counts["completed"] == len(added))
    await store.close()

asyncio.run(asyncio.wait_for(main(), 14))
"""


async def test_a_worker_goes_on_when_the_disk_has_room_again_and_runs_each_job_once(path):
    said = (await run_python(FULL, path)).splitlines()

    assert any("nothing was changed" in line for line in said)
    assert said[-1] == "True True True"


# a file that others hold


async def test_a_file_that_another_program_holds_for_a_while_is_waited_for(store, program, later):
    queue = Queue("line", store=store)
    other = program()
    other.execute("BEGIN IMMEDIATE")
    later(0.4, other.rollback)

    jobs = await asyncio.gather(*(queue.add("work", number) for number in range(5)), queue.pause(), queue.counts())

    assert len(jobs) == 7
    assert (await queue.counts())["waiting"] == 5


async def test_a_file_that_is_held_when_the_store_opens_is_waited_for(store, opener, program, later):
    await Queue("line", store=store).add("work")
    other = program()
    other.execute("BEGIN IMMEDIATE")
    later(0.4, other.rollback)

    assert (await Queue("line", store=opener()).counts())["waiting"] == 1


async def test_a_file_that_another_program_holds_for_itself_alone_is_waited_for(opener, program, later):
    store = opener()
    await Queue("line", store=store).add("work")
    await store.close()
    other = program()
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("CREATE TABLE mine (a)")
    other.commit()
    later(0.4, other.close)

    assert (await Queue("line", store=store).counts())["waiting"] == 1


async def test_a_database_of_the_user_that_is_busy_when_the_store_comes_is_waited_for(opener, program, later):
    other = program()
    other.execute("CREATE TABLE mine (a)")  # with a rollback journal, as every new database has
    other.commit()
    other.execute("BEGIN EXCLUSIVE")
    later(0.6, other.rollback)

    job = await Queue("line", store=opener()).add("work")

    assert job.state == "waiting"


async def test_a_file_that_is_held_for_too_long_is_an_error_and_nothing_was_changed(store, program, monkeypatch):
    queue = Queue("line", store=store)
    await queue.add("work")
    monkeypatch.setattr(writer, "PATIENCE", 0.2)
    other = program()
    other.execute("BEGIN IMMEDIATE")
    asked = time.monotonic()

    await broken(queue, StoreUnavailable, "locked by another program for too long", "nothing was changed")
    assert 0.2 <= time.monotonic() - asked < 2
    assert (await queue.counts())["waiting"] == 1, "looking needs no lock"

    other.rollback()
    await queue.add("work")
    assert (await queue.counts())["waiting"] == 2


async def test_a_worker_goes_on_when_the_file_is_let_go(store, program, monkeypatch, caplog):
    monkeypatch.setattr(writer, "PATIENCE", 0.1)
    other = program()

    await goes_on(Queue("line", store=store), store, lambda: other.execute("BEGIN IMMEDIATE"), other.rollback, caplog)

    assert "it goes on when the store is back" in caplog.text


async def test_a_job_that_ends_while_the_file_is_held_is_written_once_it_is_let_go(store, program, monkeypatch):
    monkeypatch.setattr(writer, "PATIENCE", 0.1)
    queue = Queue("line", store=store)
    done = Done(takes=0.2)
    other = program()

    async with working(Worker("line", done, store=store)):
        job = await queue.add("work", 1)
        await eventually(lambda: done.data)
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(0.5)
        assert (await job.refresh()).state == "active"
        other.rollback()
        assert await job.result(timeout=10) == 1

    assert done.data == [1]


# a damaged file


async def fill(queue: Queue) -> None:
    await queue.add_many([("work", "x" * 500, {"group": f"tenant-{number % 50}"}) for number in range(1000)])


def damage(path: Path) -> None:
    """Overwrite all but the first pages; nobody may have the file open."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(os.urandom(size - 4096 * 5))


async def test_a_damaged_file_is_an_error_that_says_how_to_rescue(store, path):
    queue = Queue("line", store=store)
    await fill(queue)
    await store.close()
    damage(path)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"is damaged.*keep a copy.*backup.*\.recover") as error:
        await start(store, 10)
        await queue.list(limit=1000)
    assert not isinstance(error.value, StoreUnavailable), "trying again does not help"
    await store.close()

    assert path.read_bytes() == before


async def test_a_worker_goes_on_when_a_damaged_file_is_replaced_by_its_backup(store, path, tmp_path, caplog):
    queue = Queue("line", store=store)
    await fill(queue)
    await queue.drain()
    good = [backup(path, tmp_path / f"good-{number}.db") for number in range(2)]
    bad = shutil.copy(good[0], tmp_path / "bad.db")
    damage(bad)

    await goes_on(queue, store, lambda: put_in_place(path, bad), lambda: put_in_place(path, good[0]), caplog)

    assert "is damaged" in caplog.text


# a file that is gone


async def test_a_file_that_was_deleted_is_made_anew_and_the_log_says_so(store, path, caplog):
    queue = Queue("line", store=store)
    await queue.add("work")

    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    await queue.add("work", "anew")

    assert path.exists()
    assert [job.data for job in await queue.list()] == ["anew"]
    assert "was deleted or replaced while it was in use" in caplog.text


async def test_a_file_that_was_replaced_is_the_one_that_counts(store, opener, path, tmp_path):
    queue = Queue("line", store=store)
    await queue.add("work", "old")
    other = opener(tmp_path / "other.db")
    await Queue("line", store=other).add("work", "new")
    await other.close()

    put_in_place(path, tmp_path / "other.db")

    assert [job.data for job in await queue.list()] == ["new"]


async def test_a_sleeping_worker_hears_of_jobs_in_the_file_that_replaced_its_own(store, opener, path, monkeypatch):
    monkeypatch.setattr(listening, "POLL_EVERY", 0.05)
    done = Done()
    async with working(Worker("line", done, store=store)):
        await asyncio.sleep(0.3)  # it sleeps, and has looked at the file
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink()
        await Queue("line", store=opener()).add("work", "anew")
        await eventually(lambda: done.data, within=5)

    assert done.data == ["anew"]


async def test_a_worker_goes_on_when_its_file_was_away_for_a_while(store, path, tmp_path, caplog):
    queue = Queue("line", store=store)
    ends = ("", "-wal", "-shm")

    def away() -> None:
        for end in ends:
            os.rename(f"{path}{end}", tmp_path / f"away{end}")
        path.mkdir()

    def back() -> None:
        path.rmdir()
        for end in ends:
            os.rename(tmp_path / f"away{end}", f"{path}{end}")

    await goes_on(queue, store, away, back, caplog)


async def test_a_worker_that_runs_until_all_is_done_outlives_trouble_too(store, path, tmp_path, caplog):
    queue = Queue("line", store=store)
    done = Done(takes=0.05)
    await queue.add_many([("work", number) for number in range(10)])
    ends = ("", "-wal", "-shm")
    run = asyncio.create_task(Worker("line", done, store=store).run(until_empty=True))
    await eventually(lambda: len(done.data) >= 2)

    for end in ends:
        os.rename(f"{path}{end}", tmp_path / f"away{end}")
    path.mkdir()
    await eventually(lambda: "cannot claim" in caplog.text or run.done())
    path.rmdir()
    for end in ends:
        os.rename(tmp_path / f"away{end}", f"{path}{end}")
    await asyncio.wait_for(run, 10)

    assert sorted(done.data) == list(range(10))
    assert (await queue.counts())["completed"] == 10


# network


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local/my\\040disk xfs rw 0 0
//box/share /mnt/share cifs rw 0 0
you@far:/ /mnt/far fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/home", "nfs4"),
        ("/home/ann/jobs", "nfs4"),
        ("/homework", "ext4"),
        ("/home/local/my disk/jobs", "xfs"),
        ("/mnt/share/a", "cifs"),
        ("/mnt/far", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(tmp_path, folder, kind):
    (tmp_path / "mounts").write_text(MOUNTS)

    assert connect.file_system(Path(folder), str(tmp_path / "mounts")) == kind


def test_where_nobody_can_say_the_file_system_is_unknown(tmp_path):
    assert connect.file_system(tmp_path, str(tmp_path / "nothing")) == ""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
async def test_a_network_file_system_is_warned_of_and_works(opener, path, monkeypatch, caplog, kind):
    monkeypatch.setattr(connect, "file_system", lambda folder: kind)

    await Queue("line", store=opener()).add("work")

    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    text = warning.getMessage()
    assert str(path) in text
    assert kind in text
    assert "local disk" in text


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", ""])
async def test_a_local_file_system_is_nothing_to_talk_about(opener, monkeypatch, caplog, kind):
    monkeypatch.setattr(connect, "file_system", lambda folder: kind)

    await Queue("line", store=opener()).add("work")

    assert caplog.records == []
