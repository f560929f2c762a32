"""Two releases on one database: each has functions of its own, and both share the tables."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest

from paceline import Concurrency, Limit, Queue, Rate
from paceline.errors import SchemaMismatch, StoreError
from paceline.job import NewJob
from paceline.stores import open_store
from paceline.stores.interface import Ask
from paceline.stores.postgres import calls
from paceline.stores.postgres import schema as schemas
from paceline.stores.postgres.names import FORMAT, Names, fingerprint, function_names, relations
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server
from .releases import installed, migrate_now, start, wipe

JOBS, PROCESSES = 120, 2
MOST, PER, SLOTS = 20, 0.5, 4
WORKER = """
import asyncio, json, sys, time
from paceline import Worker
from paceline.stores import open_store
from paceline.stores.postgres.names import fingerprint

async def handler(job):
    began = time.monotonic()
    await asyncio.sleep(0.02)
    print(json.dumps([job.id, fingerprint(), began, time.monotonic()]), flush=True)

async def main():
    store = open_store(sys.argv[1], schema="shared")
    await store.open()
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    await Worker("line", handler, store=store, concurrency=3).run(until_empty=True)
    await store.close()

asyncio.run(main())
"""


# side by side


async def test_two_releases_drain_one_queue_under_one_limit(sql, schema, next_release):
    url = server().url()
    store = open_store(url, schema=schema)
    queue = Queue("line", store=store, limits=[Limit("all", Rate(MOST, per=f"{PER}s") & Concurrency(SLOTS))])
    await queue.add_many(("work", None, {"job_id": f"{n}", "group": f"g{n % 5}"}) for n in range(JOBS))

    workers = [start(folder, "-c", WORKER, url) for folder in (None, next_release) * PROCESSES]
    for worker in workers:
        assert await asyncio.to_thread(worker.stdout.readline) == '"ready"\n', worker.stderr.read()
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [await asyncio.to_thread(worker.communicate, timeout=60) for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * len(workers), said
    runs = [json.loads(line) for out, _ in said for line in out.splitlines()]
    assert sorted(int(job) for job, *_ in runs) == list(range(JOBS))
    by_release = Counter(release for _, release, *_ in runs)
    assert sorted(by_release) == installed(sql, schema)
    assert len(by_release) == 2
    starts = [each.at for each in await queue.starts()]
    assert len(starts) == JOBS
    spans = [(b - a).total_seconds() for a, b in zip(starts, starts[MOST:], strict=False)]
    assert min(spans) >= PER
    changes = sorted((at, step) for *_, began, ended in runs for at, step in ((began, 1), (ended, -1)))
    running = [sum(step for _, step in changes[: place + 1]) for place in range(len(changes))]
    print(f"{dict(by_release)}; closest {MOST + 1} starts in {min(spans):.3f} s; {max(running)} at once")
    assert max(running) <= SLOTS
    await store.close()


def test_a_release_that_changed_only_a_function_is_installed_beside_the_other(sql, schema, next_release):
    words = (server().url(), "--schema", schema)

    said = [migrate_now(folder, *words) for folder in (None, next_release, next_release, None)]

    assert said == [f"schema 'shared': {what}\n" for what in ["migrated", "migrated", *["nothing to do"] * 2]]
    both = installed(sql, schema)
    assert len(both) == 2
    assert fingerprint() in both
    number = "select count(*) from pg_proc where pronamespace = %s::regnamespace"
    counts = {each: sql.execute(number, (f"shared_f_{each}",)).fetchone()[0] for each in both}
    assert sorted(counts.values()) == [counts[fingerprint()], counts[fingerprint()] + 1]


async def test_a_program_goes_on_while_the_next_release_is_installed(sql, schema, next_release):
    store = open_store(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])

    await asyncio.to_thread(migrate_now, next_release, server().url(), "--schema", schema)
    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000))

    assert len(installed(sql, schema)) == 2
    assert [job.id for job in claim.jobs] == ["a"]
    await store.close()


def test_no_name_is_both_a_function_and_a_table():
    assert set(function_names()) & set(relations()) == set()


def test_names_are_translated_to_where_they_live():
    names = Names("mine")
    text = "select paceline.fold(1), nextval('paceline.fence') from paceline.job; select pg_notify('paceline.ears', '')"
    ours = f"mine_f_{fingerprint()}"

    assert names.text(text) == (
        f"select {ours}.fold(1), nextval('mine.fence') from mine.job; select pg_notify('mine.ears', '')"
    )
    assert names.text(text) is names.text(text)


# newer tables


async def test_tables_that_only_gained_something_are_used_by_the_release_before(sql, schema):
    store = open_store(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])
    await store.close()
    sql.execute("update shared.version set number = number + 1; alter table shared.job add column news int default 1")

    store = open_store(server().url(), schema=schema, migrate=False)
    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000))

    assert [job.id for job in claim.jobs] == ["a"]
    await store.close()


async def test_a_program_that_runs_while_a_newer_release_takes_over_is_told(sql, schema):
    store = PostgresStore(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])
    sql.execute(f"update shared.version set number = 99, oldest = 99; drop schema {store.names.functions} cascade")

    for step in (
        store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000)),
        store.insert([NewJob("b", "line", "work")]),
        store.counts("line"),
    ):
        with pytest.raises(SchemaMismatch, match=r"format 99, made by a newer Paceline.*install that release"):
            await step

    assert sql.execute("select count(*) from shared.job").fetchone() == (1,)
    await store.close()


# functions that were dropped by hand


@pytest.mark.parametrize(
    "how", ["drop schema {} cascade", "drop function {}.claim_jobs", "drop type {}.grant_ cascade"]
)
async def test_functions_that_were_dropped_are_made_again(sql, schema, how):
    store = PostgresStore(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])
    sql.execute(how.format(store.names.functions))
    careful = PostgresStore(server().url(), schema=schema, migrate=False)

    with pytest.raises(SchemaMismatch, match=rf"lacks \d+ of the {len(function_names())} functions.*paceline migrate"):
        await careful.open()
    said = await asyncio.to_thread(migrate_now, None, server().url(), "--schema", schema)

    assert said == "schema 'shared': migrated\n"
    await careful.open()
    # The program that was running works again too.
    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000))
    assert [job.id for job in claim.jobs] == ["a"]
    await careful.close()
    await store.close()


async def test_a_running_program_says_that_its_functions_are_gone(sql, schema):
    store = PostgresStore(server().url(), schema=schema)
    await store.open()
    sql.execute(f"drop schema {store.names.functions} cascade")

    with pytest.raises(SchemaMismatch, match=f"{store.names.functions}.*run `paceline migrate`"):
        await store.insert([NewJob("a", "line", "work")])

    await store.close()


async def test_tables_that_were_dropped_and_their_functions_are_made_again(sql, schema):
    store = PostgresStore(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])
    await store.close()
    sql.execute("drop schema shared cascade")

    store = PostgresStore(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])

    assert (await store.counts("line"))["waiting"] == 1
    await store.close()


# rights


async def test_a_role_that_may_not_create_is_told_what_to_grant(sql, schema):
    store = PostgresStore(server().url(), schema=schema)
    await store.open()
    await store.close()
    sql.execute("drop role if exists owner_of_one; create role owner_of_one login")
    sql.execute(f"drop schema {store.names.functions} cascade; grant usage on schema shared to owner_of_one")
    sql.execute("grant all on all tables in schema shared to owner_of_one")
    sql.execute("grant all on all sequences in schema shared to owner_of_one")
    limited, here = PostgresStore(server().url(user="owner_of_one"), schema=schema), sql.info.dbname

    with pytest.raises(StoreError, match=rf"may not create schemas.*grant create on database {here} to owner_of_one"):
        await limited.open()
    sql.execute(f"grant create on database {here} to owner_of_one")
    await limited.insert([NewJob("a", "line", "work")])

    assert (await limited.counts("line"))["waiting"] == 1
    await limited.close()
    wipe(sql, schema)
    sql.execute("drop owned by owner_of_one; drop role owner_of_one")


# what is not ours


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("create table shared.version (id int, name text)", "a table `version` that is not Paceline's"),
        ("create table shared.job (id int)", 'relation "job" already exists'),
        ("create view shared.queue as select 1", 'relation "queue" already exists'),
        ("create type shared.lane as (id int)", 'relation "lane" already exists'),
    ],
)
@pytest.mark.parametrize("may", [True, False])
async def test_a_schema_with_the_same_names_is_refused_and_left_alone(sql, schema, theirs, said, may):
    sql.execute(f"create schema shared; {theirs}")
    store = PostgresStore(server().url(), schema=schema, migrate=may)

    with pytest.raises(SchemaMismatch, match=f"{said}|does not exist") as error:
        await store.open()

    assert ("name another" in str(error.value)) or not may
    names = sql.execute("select count(*) from pg_class where relnamespace = 'shared'::regnamespace and relkind <> 'i'")
    assert names.fetchone() == (1,)
    assert sql.execute("select to_regnamespace(%s)", (store.names.functions,)).fetchone() == (None,)
    await store.close()


async def test_functions_of_the_user_with_our_names_stay_where_they_are(sql, schema):
    sql.execute(
        "create schema shared; create function shared.clock_us() returns bigint language sql as 'select 7::bigint'"
    )
    sql.execute("create type shared.choosing as (mine int)")
    store = PostgresStore(server().url(), schema=schema)
    await store.insert([NewJob("a", "line", "work")])

    assert (await store.counts("line"))["waiting"] == 1
    assert sql.execute("select shared.clock_us(), (row(3)::shared.choosing).mine").fetchone() == (7, 3)
    await store.close()


# functions that nobody uses


async def test_functions_that_nobody_uses_are_removed(sql, schema):
    store = PostgresStore(server().url(), schema=schema)
    await store.open()
    await store.close()
    # name, installed so many days ago, seen so many days ago
    releases = [("stale", 60, 40), ("in_use", 60, 2), ("neighbour", 45, 40), ("needed", 70, 40), ("mine_again", 80, 40)]
    for name, came, seen in releases:
        sql.execute(f"create schema shared_f_{name}; create type shared_f_{name}.t as (id int)")
        sql.execute(f"create function shared_f_{name}.f(shared_f_{name}.t) returns int language sql as 'select 1'")
        sql.execute(
            "insert into shared.installed values (%s, '0', %s, now() - %s * interval '1d', now() - %s * interval '1d')",
            (name, FORMAT, came, seen),
        )
    sql.execute("create view shared.mine as select shared_f_needed.f(null)")
    sql.execute(f"drop schema {store.names.functions} cascade")

    await store.open()

    there = sql.execute("select nspname from pg_namespace where nspname ~ '^shared_f_' order by 1").fetchall()
    assert {name for (name,) in there} == {
        store.names.functions,
        *(f"shared_f_{name}" for name in ("in_use", "needed", "neighbour")),
    }
    assert installed(sql, schema) == sorted([fingerprint(), "in_use", "needed", "neighbour"])
    await store.close()


async def test_a_role_that_may_only_look_can(sql, schema):
    owner = PostgresStore(server().url(), schema=schema)
    await owner.insert([NewJob("a", "line", "work")])
    await owner.close()
    sql.execute("drop role if exists onlooker; create role onlooker login")
    sql.execute("grant usage on schema shared to onlooker; grant select on all tables in schema shared to onlooker")
    sql.execute("alter role onlooker set default_transaction_read_only = on")
    store = PostgresStore(server().url(user="onlooker"), schema=schema, migrate=False)

    assert [job.id for job in await store.get(["a"])] == ["a"]

    await store.close()
    sql.execute("drop owned by onlooker; drop role onlooker")


async def test_functions_of_a_format_that_is_no_longer_understood_go_at_once(sql, schema):
    store = PostgresStore(server().url(), schema=schema)
    await store.open()
    await store.close()
    sql.execute("create schema shared_f_past; create function shared_f_past.f() returns int language sql as 'select 1'")
    sql.execute("insert into shared.installed values ('past', '0', %s)", (schemas.OLDEST - 1,))
    sql.execute(f"drop schema {store.names.functions} cascade")

    await store.open()

    assert sql.execute("select to_regnamespace('shared_f_past')").fetchone() == (None,)
    assert installed(sql, schema) == [fingerprint()]
    await store.close()


async def test_a_program_says_once_an_hour_that_it_uses_its_functions(sql, schema, monkeypatch):
    long_ago = "update shared.installed set seen_at = now() - interval '50 days'"
    recent = "select seen_at > now() - interval '1 minute' from shared.installed"
    store = PostgresStore(server().url(), schema=schema)
    await store.open()
    sql.execute(long_ago)
    await store.counts("line")
    assert sql.execute(recent).fetchone() == (False,)

    now = time.monotonic()
    monkeypatch.setattr(calls.time, "monotonic", lambda: now + schemas.SEEN_EVERY + 1)
    await store.counts("line")
    assert sql.execute(recent).fetchone() == (True,)

    # And whoever opens it.
    sql.execute(long_ago)
    await store.close()
    await store.open()
    assert sql.execute(recent).fetchone() == (True,)
    await store.close()
