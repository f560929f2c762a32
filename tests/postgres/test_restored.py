"""A dump that is put back on another server: transactions are counted anew there, and jobs start all the same."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from paceline.job import NewJob
from paceline.stores.interface import Ask
from paceline.stores.postgres import schema as schemas
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server
from ..servers.postgres import Server
from .earlier.scenario import dump


def ask(slots: int) -> Ask:
    return Ask(queues=("line",), slots=slots, worker="w", lease=60_000_000)


def put_back(text: str) -> Server:
    """A new server with what a dump holds."""
    other = Server().__enter__()
    with psycopg.connect(other.url(), autocommit=True) as connection:
        connection.execute(text)
    return other


@pytest.mark.parametrize("functions", [True, False], ids=["all schemas", "the tables alone"])
async def test_jobs_that_wait_in_a_dump_and_jobs_that_come_later_start(store, sql, functions):
    await store.insert([NewJob(f"{n}", "line", "work", group=f"g{n}") for n in range(4)])
    assert len((await store.claim(ask(1))).jobs) == 1
    sql.execute("do $$ begin for i in 1 .. 3000 loop perform pg_current_xact_id(); commit; end loop; end $$")
    assert len((await store.claim(ask(1))).jobs) == 1
    await store.insert([NewJob("late", "line", "work", group="new")])
    text = "".join(dump(sql, schemas.script("paceline")))

    other = put_back(text)
    try:
        with psycopg.connect(other.url(), autocommit=True) as connection:
            if not functions:
                connection.execute(f"drop schema {store.names.functions} cascade")
            assert behind(connection), "the other server has come further than this one"
        restored = PostgresStore(other.url())
        await restored.insert([NewJob("later", "line", "work")])
        ids = [job.id for _ in range(3) for job in (await restored.claim(ask(9))).jobs]
        await restored.close()
    finally:
        other.__exit__()

    assert sorted(ids) == ["2", "3", "late", "later"]


def behind(connection: psycopg.Connection[Any]) -> bool:
    found = connection.execute(
        "select pg_snapshot_xmax(folded) > pg_snapshot_xmax(pg_current_snapshot()) from paceline.queue_state"
    ).fetchone()
    return bool(found and found[0])


async def test_who_opens_a_store_that_was_never_moved_changes_nothing(store, sql):
    await store.insert([NewJob("a", "line", "work")])
    await store.claim(ask(1))
    row = "select ctid, xmin, l::text from paceline.queue_state l"
    before = sql.execute(row).fetchall()

    other = PostgresStore(server().url())
    await other.open()
    await other.close()

    assert sql.execute(row).fetchall() == before
