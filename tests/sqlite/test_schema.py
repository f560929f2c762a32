"""The tables of a file: made at first use, upgraded in place, and never put into a file that is somebody else's."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from paceline import Queue, SchemaMismatch, StoreError, open_store
from paceline.stores.sqlite import schema

from .helpers import run_python


async def use(path: Path, **options) -> dict[str, int]:
    """Open the file, add a job, count, close."""
    store = open_store(f"sqlite:///{path}", durability="normal", **options)
    try:
        queue = Queue("line", store=store)
        await queue.add("work")
        return await queue.counts()
    finally:
        await store.close()


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def make(path: Path, script: str) -> None:
    """A database of somebody else."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)


def set_version(path: Path, version: int) -> None:
    make(path, f"UPDATE paceline_file SET version = {version}")


# first use


async def test_the_tables_are_made_at_the_first_use(path):
    assert (await use(path))["waiting"] == 1

    assert {"paceline_file", "paceline_job"} <= tables(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (schema.OURS,)
        assert db.execute("SELECT version FROM paceline_file").fetchone() == (schema.VERSION,)


async def test_an_empty_file_is_as_good_as_none(path):
    path.touch()

    assert (await use(path))["waiting"] == 1


async def test_many_threads_that_are_the_first_at_once_make_one_file(path):
    number = 12
    gate = threading.Barrier(number)
    errors: list[BaseException] = []

    def first() -> None:
        try:
            gate.wait(10)
            asyncio.run(use(path))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=first) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)

    assert errors == []
    assert (await use(path))["waiting"] == number + 1


async def test_many_processes_that_are_the_first_at_once_make_one_file(path):
    script = """
import asyncio, sys
from paceline import Queue
asyncio.run(Queue("line", store="sqlite:///" + sys.argv[1] + "?durability=normal").add("work"))
"""
    await asyncio.gather(*(run_python(script, path) for _ in range(2)))

    assert (await use(path))["waiting"] == 3


# other versions


async def test_a_file_of_a_newer_version_is_refused_with_both_versions_and_not_changed(path):
    await use(path)
    newer = schema.VERSION + 41
    set_version(path, newer)
    before = path.read_bytes()

    with pytest.raises(SchemaMismatch, match=rf"{newer}.*{schema.VERSION}.*upgrade Paceline") as error:
        await use(path)

    assert str(path) in str(error.value)
    assert path.read_bytes() == before


async def test_a_file_of_an_older_version_is_upgraded_in_place_and_keeps_its_jobs(path, monkeypatch):
    await use(path)
    first = "CREATE TABLE paceline_first (a INTEGER); -- one; two\nINSERT INTO paceline_first VALUES (1);\n"
    second = (
        "CREATE TABLE paceline_second (a INTEGER);\nINSERT INTO paceline_second SELECT a + 1 FROM paceline_first;\n"
    )
    steps = {"to-next": first, "to-last": second}
    monkeypatch.setattr(schema, "text", lambda name: steps[name])
    monkeypatch.setattr(schema, "UPGRADES", {schema.VERSION: "to-next", schema.VERSION + 1: "to-last"})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 2)

    assert (await use(path))["waiting"] == 2
    assert (await use(path))["waiting"] == 3

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT a FROM paceline_second").fetchall() == [(2,)]
        assert db.execute("SELECT version FROM paceline_file").fetchall() == [(schema.VERSION,)]


async def test_a_file_of_the_first_version_is_upgraded_and_keeps_its_jobs(path):
    await use(path)
    set_version(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE paceline_meter DROP COLUMN open")
        db.execute("ALTER TABLE paceline_permit DROP COLUMN gate")
        db.execute("ALTER TABLE paceline_space RENAME COLUMN listeners_version TO ears_version")
        db.execute("ALTER TABLE paceline_space RENAME COLUMN notified TO news")
        db.execute("ALTER TABLE paceline_listener RENAME TO paceline_ear")

    assert (await use(path))["waiting"] == 2

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT version FROM paceline_file").fetchall() == [(schema.VERSION,)]


async def test_many_who_find_an_older_version_at_once_upgrade_it_once(path, monkeypatch):
    await use(path)
    monkeypatch.setattr(schema, "text", lambda name: "CREATE TABLE paceline_new (a INTEGER);\n")
    monkeypatch.setattr(schema, "UPGRADES", {schema.VERSION: "next"})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)

    await asyncio.gather(*(use(path) for _ in range(8)))

    assert (await use(path))["waiting"] == 10


async def test_an_upgrade_that_breaks_off_changes_nothing(path, monkeypatch):
    await use(path)
    before = path.read_bytes()
    monkeypatch.setattr(
        schema, "text", lambda name: "CREATE TABLE paceline_new (a INTEGER);\nINSERT INTO nowhere VALUES (1);\n"
    )
    monkeypatch.setattr(schema, "UPGRADES", {schema.VERSION: "next"})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)

    with pytest.raises(StoreError, match="nowhere"):
        await use(path)

    assert path.read_bytes() == before


# files of others


async def refused(path: Path) -> StoreError:
    """The error with which a file is refused; not one byte of it may have changed."""
    before = path.read_bytes()
    with pytest.raises(StoreError) as error:
        await use(path)
    assert path.read_bytes() == before
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    assert str(path) in str(error.value)
    return error.value


async def test_a_text_file_is_no_database(path):
    path.write_text("Dear diary, " * 1000)

    assert "no SQLite database" in str(await refused(path))


async def test_a_file_whose_header_is_damaged_is_no_database(path):
    await use(path)
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])

    assert "no SQLite database" in str(await refused(path))


async def test_a_file_that_was_cut_off_is_called_damaged(path):
    await use(path)
    path.write_bytes(path.read_bytes()[: 4096 * 3])

    assert "damaged" in str(await refused(path))


@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_the_database_of_another_program_is_refused_and_not_changed(path, journal):
    make(path, f"PRAGMA journal_mode = {journal}; PRAGMA application_id = 77; CREATE TABLE photos (name TEXT)")

    error = await refused(path)

    assert isinstance(error, SchemaMismatch)
    assert "belongs to another program" in str(error)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE paceline_file (name TEXT); INSERT INTO paceline_file VALUES ('photo')",
        "CREATE TABLE paceline_file (id INTEGER, version INTEGER)",
        "CREATE TABLE paceline_file (id INTEGER, version TEXT); INSERT INTO paceline_file VALUES (1, 'final')",
        "CREATE TABLE paceline_file (id INTEGER, version INTEGER); INSERT INTO paceline_file VALUES (1, 0)",
        "CREATE TABLE paceline_file (id INTEGER, version INTEGER); INSERT INTO paceline_file VALUES (1, -7)",
        f"CREATE TABLE paceline_file (id INTEGER, version INTEGER);"
        f"INSERT INTO paceline_file VALUES (1, {schema.VERSION})",
        "CREATE TABLE paceline_job (name TEXT)",
    ],
    ids=["other columns", "no row", "text", "version 0", "negative", "nothing else", "only another table"],
)
@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_tables_of_our_names_that_are_not_ours_are_refused_and_not_changed(path, table, journal):
    make(path, f"PRAGMA journal_mode = {journal}; {table}")

    assert isinstance(await refused(path), SchemaMismatch)


async def test_the_users_own_tables_are_welcome_and_left_alone(path):
    make(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT); INSERT INTO orders VALUES (1, 'tea')")

    assert (await use(path))["waiting"] == 1

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM orders").fetchall() == [(1, "tea")]
        assert db.execute("PRAGMA application_id").fetchone() == (0,), "the file is still the user's"
    assert (await use(path))["waiting"] == 2


async def test_tables_that_the_user_adds_later_are_welcome_too(path):
    await use(path)
    make(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY); CREATE INDEX by_id ON orders (id)")

    assert (await use(path))["waiting"] == 2


async def test_a_refused_file_is_taken_once_it_is_replaced_by_a_good_one(path):
    path.write_text("not a database at all, and long enough to look like one" * 100)
    store = open_store(f"sqlite:///{path}")
    queue = Queue("line", store=store)
    with pytest.raises(StoreError):
        await queue.add("work")

    path.unlink()
    await queue.add("work")
    counts = await queue.counts()
    await store.close()

    assert counts["waiting"] == 1


async def test_a_first_look_that_meets_a_lock_is_done_again(tmp_path, monkeypatch):
    looks = []
    look = schema.version_of

    def busy(db, path):
        looks.append(path)
        if len(looks) in (2, 3):  # after the connection was made, while another process turns the file to its log
            raise sqlite3.OperationalError("database is locked")
        return look(db, path)

    monkeypatch.setattr(schema, "version_of", busy)
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")

    await store.open()

    assert len(looks) > 3
    await store.close()
