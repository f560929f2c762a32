"""Tables that are emptied or made anew under a program that runs: it starts nothing, and says why."""

from __future__ import annotations

import pytest

from paceline.errors import StoreError
from paceline.job import NewJob
from paceline.limits import Concurrency, Limit
from paceline.stores.interface import Ask
from paceline.stores.postgres.store import PostgresStore

TABLES = """select string_agg(format('emptied.%I', c.relname), ', ') from pg_class c
    where c.relnamespace = 'emptied'::regnamespace and c.relkind = 'r' and c.relname <> 'version'"""


@pytest.mark.parametrize("how", ["truncated", "made anew"])
async def test_nothing_starts_without_the_limits_that_were_declared(sql, url, how):
    store = PostgresStore(url, schema="emptied")
    await store.set_limits([Limit("two", Concurrency(2), queues=["line"])])
    await store.insert([NewJob("a", "line", "work")])
    if how == "truncated":
        sql.execute("truncate " + sql.execute(TABLES).fetchone()[0])
    else:
        sql.execute("drop schema emptied cascade")
    other = PostgresStore(url, schema="emptied")
    await other.insert([NewJob(f"{number}", "line", "work") for number in range(9)])
    try:
        with pytest.raises(StoreError, match=r"emptied or made anew while this program runs.*restart it"):
            await store.claim(Ask(queues=("line",), slots=9, worker="w", lease=60_000_000))
    finally:
        await other.close()
        await store.close()
        sql.execute("drop schema emptied cascade")
