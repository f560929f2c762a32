"""Migrations: by many at once, twice, in a schema of any name; a newer one is refused; the role needs little."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import psycopg
import pytest

from paceline.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable
from paceline.job import NewJob
from paceline.stores import open_store
from paceline.stores.interface import Ask
from paceline.stores.postgres.names import FORMAT

from ..servers.fresh import server


def in_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


async def test_many_that_migrate_at_once_migrate_once(sql):
    sql.execute("drop schema if exists crowd cascade")
    errors: list[BaseException] = []

    async def use(number: int) -> None:
        store = open_store(server().url(), schema="crowd")
        await store.insert([NewJob(f"{number}", "line", "work")])
        await store.close()

    def run(number: int) -> None:
        try:
            asyncio.run(use(number))
        except BaseException as error:
            errors.append(error)

    threads = [in_thread(lambda number=number: run(number)) for number in range(8)]
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert errors == []
    assert sql.execute("select count(*) from crowd.version").fetchone() == (1,)
    assert sql.execute("select count(*) from crowd.job").fetchone() == (8,)
    sql.execute("drop schema crowd cascade")


async def test_a_store_works_in_a_schema_of_another_name(sql):
    sql.execute("drop schema if exists elsewhere cascade")
    store = open_store(server().url(), schema="elsewhere")
    await store.insert([NewJob("a", "line", "work")])

    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000))

    assert [job.id for job in claim.jobs] == ["a"]
    assert sql.execute("select count(*) from paceline.job").fetchone() == (0,)
    await store.close()
    sql.execute("drop schema elsewhere cascade")


async def test_a_newer_schema_is_refused(sql):
    sql.execute("drop schema if exists future cascade; create schema future; create table future.version (number int)")
    sql.execute("insert into future.version values (99)")
    store = open_store(server().url(), schema="future")

    with pytest.raises(SchemaMismatch, match="99"):
        await store.open()

    await store.close()
    sql.execute("drop schema future cascade")


async def test_without_leave_to_migrate_a_missing_schema_is_refused(sql):
    store = open_store(server().url(), schema="nowhere", migrate=False)

    with pytest.raises(SchemaMismatch, match="migrate"):
        await store.open()

    await store.close()


@pytest.mark.parametrize("schema", ["Paceline", "a b", "", 'x"y', "1st", "a" * 51, 7])
def test_a_schema_that_cannot_be_written_plainly_is_refused(schema):
    with pytest.raises(ConfigError, match="schema"):
        open_store(server().url(), schema=schema)


async def test_namespaces_share_nothing(url):
    one, two = open_store(url, namespace="one"), open_store(url, namespace="two")
    await one.insert([NewJob("a", "line", "work")])
    await two.insert([NewJob("a", "line", "work")])

    claim = await two.claim(Ask(queues=("line",), slots=5, worker="w", lease=1_000_000))

    assert [job.id for job in claim.jobs] == ["a"]
    assert (await one.counts("line"))["waiting"] == 1
    await one.close()
    await two.close()


# the least that a role needs


async def test_a_role_with_the_rights_of_the_docs_can_do_everything_but_migrate(sql):
    sql.execute("drop role if exists little")
    sql.execute("create role little login")
    sql.execute("grant usage on schema paceline to little")
    sql.execute("grant select, insert, update, delete on all tables in schema paceline to little")
    sql.execute("grant usage, select on all sequences in schema paceline to little")
    store = open_store(server().url(user="little"), migrate=False)
    await store.insert([NewJob("a", "line", "work")])

    claim = await store.claim(Ask(queues=("line",), slots=5, worker="w", lease=1_000_000))

    assert [job.id for job in claim.jobs] == ["a"]
    await store.close()
    sql.execute("drop owned by little; drop role little")


async def test_a_role_without_rights_is_told_so(sql):
    sql.execute("drop role if exists nobody_much")
    sql.execute("create role nobody_much login")
    store = open_store(server().url(user="nobody_much"), migrate=False)

    with pytest.raises(StoreError, match=r"role|permission"):
        await store.insert([NewJob("a", "line", "work")])

    await store.close()
    sql.execute("drop role nobody_much")


# errors that people meet


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("postgresql://postgres@/nowhere?host={folder}", "nowhere"),
        ("postgresql://nobody_known@/postgres?host={folder}", "nobody_known"),
        ("postgresql://postgres@/postgres?host=/no/such/folder", "/no/such/folder"),
        ("postgresql://postgres@127.0.0.1:1/postgres", "refused"),
    ],
    ids=["database", "role", "folder", "port"],
)
async def test_a_wrong_url_says_what_is_wrong(wrong, said):
    store = open_store(wrong.format(folder=server().folder))

    with pytest.raises(StoreUnavailable, match=said):
        await store.open()

    await store.close()


async def test_a_server_that_is_full_is_unavailable_and_then_works(own_server):
    own_server.set(max_connections="5", superuser_reserved_connections="0", max_wal_senders="0")
    others = [psycopg.connect(own_server.url()) for _ in range(5)]
    store = open_store(own_server.url())

    with pytest.raises(StoreUnavailable, match="too many clients"):
        await store.open()
    for other in others:
        other.close()

    await asyncio.sleep(0.2)
    await store.insert([NewJob("a", "line", "work")])
    assert (await store.counts("line"))["waiting"] == 1
    await store.close()


# the command


def test_the_command_migrates_once(sql):
    sql.execute("drop schema if exists by_command cascade")
    command = [sys.executable, "-m", "paceline", "migrate", server().url(), "--schema", "by_command"]

    said = [subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout for _ in range(2)]

    assert said == ["schema 'by_command': migrated\n", "schema 'by_command': nothing to do\n"]
    sql.execute("drop schema by_command cascade")


@pytest.mark.parametrize("how", ["argument", "--store", "environment", "app"])
def test_the_command_finds_the_store_as_every_other_one_does(sql, tmp_path, how):
    sql.execute("drop schema if exists by_url cascade")
    url = f"{server().url()}&schema=by_url"
    (tmp_path / "jobs.py").write_text(f"from paceline import App\napp = App({url!r})\n")
    words = {"argument": [url], "--store": ["--store", url], "app": ["-a", "jobs:app"]}.get(how, [])
    environment = os.environ | ({"PACELINE_STORE": url} if how == "environment" else {})
    command = [sys.executable, "-m", "paceline", "migrate", *words]

    said = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path, env=environment
    ).stdout

    assert said == "schema 'by_url': migrated\n"
    sql.execute("drop schema by_url cascade")


def test_the_command_prints_sql_that_makes_the_schema(sql):
    sql.execute("drop schema if exists by_hand cascade")
    command = [sys.executable, "-m", "paceline", "migrate", server().url(), "--schema", "by_hand", "--sql"]

    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    sql.execute(text)

    assert sql.execute("select number from by_hand.version").fetchone() == (FORMAT,)
    sql.execute("drop schema by_hand cascade")


def test_the_command_ends_with_an_error_where_there_is_no_server():
    command = [sys.executable, "-m", "paceline", "migrate", "postgresql://postgres@127.0.0.1:1/postgres"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, "Traceback" in done.stderr) == (4, False)
    assert "refused" in done.stderr
