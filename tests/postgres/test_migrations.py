"""Migrations: by many at once, killed in the middle, run by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from paceline.stores.postgres.names import FORMAT, OLDEST, Names, fingerprint
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server
from .earlier.scenario import kept
from .releases import installed, migrate, migrate_now, start

PRINT = "from paceline.stores.postgres.names import fingerprint; print(fingerprint())"


@pytest.fixture
def earlier() -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A connection to a database that an earlier release left, and its URL."""
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute("create database crowded")
    text, _ = kept("f1e763e")
    with psycopg.connect(server().url("crowded"), autocommit=True) as connection:
        connection.execute(text)
        yield connection, server().url("crowded")
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute("drop database crowded with (force)")


def test_of_many_migrations_at_once_one_does_it(earlier):
    connection, url = earlier

    several = [migrate(None, url) for _ in range(4)]
    said = [each.communicate(timeout=60) for each in several]

    assert [each.returncode for each in several] == [0] * 4, said
    assert (
        sorted(out for out, _ in said) == ["schema 'paceline': migrated\n"] + ["schema 'paceline': nothing to do\n"] * 3
    )
    assert connection.execute("select number, oldest from paceline.version").fetchall() == [(FORMAT, OLDEST)]
    assert connection.execute("select fingerprint from paceline.installed").fetchall() == [(fingerprint(),)]
    assert connection.execute("select count(*) from paceline.job").fetchone() == (44,)


WAITS = "select pid from pg_locks where not granted and "


def wait_for(connection: psycopg.Connection[Any], query: str, there: bool) -> list[Any]:
    for _ in range(500):
        rows = connection.execute(query).fetchall()
        if bool(rows) == there:
            return rows
        time.sleep(0.02)
    raise AssertionError(f"{query}: {rows}")


def test_a_migration_that_is_killed_in_the_middle_has_changed_nothing(earlier):
    connection, url = earlier
    jobs = connection.execute("select count(*), sum(hashtext(j::text)) from paceline.job j").fetchone()
    with psycopg.connect(url) as blocker:
        # It is changed last: all other tables are changed by then, and the earlier functions dropped.
        blocker.execute("lock table paceline.version in row share mode")
        killed = migrate(None, url)
        ((pid,),) = wait_for(connection, f"{WAITS} relation = 'paceline.version'::regclass", True)
        killed.kill()
        killed.communicate()
    wait_for(connection, f"select from pg_stat_activity where pid = {pid}", False)

    assert connection.execute("select * from paceline.version").fetchall() == [(1,)]
    assert connection.execute("select to_regclass('paceline.installed')").fetchone() == (None,)
    assert connection.execute("select to_regproc('paceline.claim_jobs') is null").fetchone() == (False,)
    assert migrate_now(None, url) == "schema 'paceline': migrated\n"
    assert connection.execute("select count(*), sum(hashtext(j::text)) from paceline.job j").fetchone() == jobs


def test_an_installation_that_is_killed_in_the_middle_has_changed_nothing(sql, schema, next_release):
    words = (server().url(), "--schema", schema)
    migrate_now(None, *words)
    of_the_next = start(next_release, "-c", PRINT).communicate(timeout=60)[0].strip()
    before = sql.execute("select nspname from pg_namespace where nspname ~ '^shared' order by 1").fetchall()
    with psycopg.connect(server().url()) as blocker:
        # All functions are made when it writes down that they are, and waits for who does the same.
        blocker.execute("insert into shared.installed values (%s, '0', 0)", (of_the_next,))
        killed = migrate(next_release, *words)
        ((pid,),) = wait_for(sql, f"{WAITS} locktype = 'transactionid'", True)
        killed.kill()
        killed.communicate()
    wait_for(sql, f"select from pg_stat_activity where pid = {pid}", False)

    there = sql.execute("select nspname from pg_namespace where nspname ~ '^shared' order by 1").fetchall()
    assert there == before
    migrate_now(next_release, *words)
    assert len(installed(sql, schema)) == 2


# by hand


@pytest.mark.parametrize("since", [0, 1, FORMAT])
async def test_the_command_prints_what_a_database_lacks(earlier, since):
    connection, url = earlier
    words = ["-m", "paceline", "migrate", url, "--sql", *(["--from", f"{since}"] if since else [])]
    text, _ = start(None, *words).communicate(timeout=60)
    if since == 0:
        connection.execute("drop schema paceline cascade")
    elif since == FORMAT:
        migrate_now(None, url)
        connection.execute(f"drop schema {Names('paceline').functions} cascade")

    connection.execute(text)

    store = PostgresStore(url, migrate=False)
    await store.open()
    assert sum((await store.counts("line")).values()) == (40 if since else 0)
    await store.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--sql", "--from", "99"], "99 is newer than"), (["--from", "1"], "wrong without --sql")],
)
def test_a_format_that_makes_no_sense_is_refused(words, said):
    done = migrate(None, server().url(), *words)
    _, error = done.communicate(timeout=60)

    assert (done.returncode, "Traceback" in error) == (2, False)
    assert said in error
