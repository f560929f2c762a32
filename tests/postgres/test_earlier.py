"""A database that an earlier release left is migrated with nothing lost; programs of that release get a clear error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from paceline.errors import SchemaMismatch, StoreError
from paceline.job import NewJob
from paceline.stores.interface import Filter, Finish, Outcome
from paceline.stores.postgres.names import FORMAT
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server
from .earlier.scenario import LIMITS, SECOND, Clock, ask, fill, kept

RELEASES = ["f1e763e", "8afaa0e"]
OLD_CLAIM = """select * from paceline.claim_jobs(1, null, '{1}', 1, 'w', 1000000, '', null, '{}', null, null, '{}',
    '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false)"""
OLD_ADD = """with came as (insert into paceline.job (seq, space, id, queue, task, data, priority, place, attempts, cost,
        created_at, due_at)
    select nextval('paceline.job_seq'), 1, 'new', 1, 'work', '', 0, 1, 1, 1, s.now, s.now
        from (select paceline.clock_us() as now) as s returning place)
select paceline.guess_lane(1, 'work', null) from came"""
"""What programs of those releases send, in their own words."""


@pytest.fixture
def database() -> Iterator[str]:
    """The name of a database of its own."""
    with psycopg.connect(server().url(), autocommit=True) as connection:
        connection.execute("create database upgraded")
        yield "upgraded"
        connection.execute("drop database upgraded with (force)")


@pytest.fixture(params=RELEASES)
def earlier(database: str, request: pytest.FixtureRequest) -> tuple[psycopg.Connection[Any], Clock]:
    """A connection to the database of an earlier release, and the instant at which it was left."""
    text, at = kept(request.param)
    with psycopg.connect(server().url(database), autocommit=True) as connection:
        connection.execute(text)
        connection.execute("reset check_function_bodies")
        yield connection, Clock(at)


@pytest.fixture
async def both(earlier: tuple[Any, Clock], database: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore, Clock]]:
    """The store that was migrated, and one of which the same was asked in this release."""
    _, clock = earlier
    migrated, fresh = (
        PostgresStore(server().url(database), clock=clock, schema=name) for name in ("paceline", "fresh")
    )
    at, clock.at = clock.at, Clock().at
    await fill(fresh, clock)
    assert clock.at == at
    await migrated.open()
    yield migrated, fresh, clock
    await migrated.close()
    await fresh.close()


async def observed(store: PostgresStore) -> dict[str, Any]:
    """All that can be asked of it."""
    jobs = [job for queue in ("line", "other") for job in await store.find(Filter(queue=queue, limit=1000))]
    return {
        "jobs": sorted(jobs, key=lambda job: (job.queue, job.id)),
        "counts": [await store.counts(queue) for queue in ("line", "other")],
        "queues": await store.queues(),
        "limits": await store.limits(),
        "overrides": await store.overrides(),
        "usage": [await store.usage(limit.name, group) for limit in LIMITS for group in groups_of(limit)],
        "starts": await store.starts("line", None),
        "standing": [await store.standing(f"{number}") for number in range(40)],
    }


def groups_of(limit: Any) -> tuple[str | None, ...]:
    return ("acme", "vip", "late", "idle") if limit.by == "group" else (None,)


async def test_nothing_is_lost(both):
    migrated, fresh, _ = both

    after, expected = await observed(migrated), await observed(fresh)

    for name, value in expected.items():
        assert after[name] == value, name


async def test_the_queue_is_drained_as_one_that_was_always_this_release(both):
    migrated, fresh, clock = both
    started: dict[PostgresStore, list[Any]] = {migrated: [], fresh: []}
    for step in range(60):
        clock.at += SECOND
        for store, seen in started.items():
            claim = await store.claim(ask("line", 3, f"drain {step}"))
            seen += [(step, job.id, job.group, job.data) for job in claim.jobs]
            await store.finish([Finish(id=j.id, fence=j.fence, outcome=Outcome.COMPLETED) for j in claim.jobs])
        if step == 30:
            for store in started:
                await store.pause("line", None, "idle", False)
                await store.pause("line", "rare", None, False)

    assert started[migrated] == started[fresh]
    assert len(started[migrated]) > 20
    assert (await migrated.counts("line"))["waiting"] == 0
    assert await migrated.starts("line", None) == await fresh.starts("line", None)


async def test_a_program_of_the_earlier_release_gets_an_error_and_changes_nothing(earlier, database):
    connection, clock = earlier
    for text in (OLD_CLAIM, OLD_ADD):
        connection.execute("begin")
        assert connection.execute(text).fetchall()
        connection.execute("rollback")
    store = PostgresStore(server().url(database), clock=clock)
    await store.open()

    for text in (OLD_CLAIM, OLD_ADD):
        with pytest.raises(psycopg.errors.UndefinedFunction):
            connection.execute(text)

    # What it asks when it opens: its own number is smaller, so it refuses.
    assert connection.execute("select max(number) from paceline.version").fetchone() == (FORMAT,)
    assert len(await store.find(Filter(queue="line", limit=1000))) == 40
    await store.close()


MINE = """create function SCHEMA.mine(int) returns int language sql as 'select $1';
create function SCHEMA.counts(text) returns int language sql as 'select 1';
create type SCHEMA.money as (amount int);
create table SCHEMA.orders (id int primary key, price SCHEMA.money);
create function SCHEMA.audit() returns trigger language plpgsql as 'begin return new; end';
create trigger audit before insert on SCHEMA.job for each row execute function SCHEMA.audit();
create view SCHEMA.backlog as select queue, count(*) from SCHEMA.job group by queue"""
"""What a user has in the same schema, some of it with names of ours."""
FUNCTIONS = "select oid::regprocedure::text from pg_proc where pronamespace = %s::regnamespace"
TYPES = "select relname from pg_class where relnamespace = %s::regnamespace and relkind = 'c'"


@pytest.mark.parametrize("schema", ["paceline", "public"])
@pytest.mark.parametrize("release", RELEASES)
async def test_functions_of_the_earlier_release_are_gone_and_nothing_else(database, release, schema):
    text, at = kept(release)
    connection = psycopg.connect(server().url(database), autocommit=True)
    connection.execute("set search_path = pg_catalog")
    connection.execute(text.replace("paceline.", f"{schema}.").replace("exists paceline;", f"exists {schema};"))
    connection.execute(MINE.replace("SCHEMA", schema))
    before = connection.execute(FUNCTIONS, (schema,)).fetchall()

    store = PostgresStore(server().url(database), schema=schema, clock=Clock(at))
    await store.insert([NewJob("one more", "line", "work")])
    await store.close()

    after = {name for (name,) in connection.execute(FUNCTIONS, (schema,)).fetchall()}
    assert after == {f"{schema}.mine(integer)", f"{schema}.counts(text)", f"{schema}.audit()"}
    assert len(before) > 175
    assert connection.execute(TYPES, (schema,)).fetchall() == [("money",)]
    assert connection.execute("select tgname from pg_trigger where not tgisinternal").fetchall() == [("audit",)]
    assert connection.execute(f"select sum(count) from {schema}.backlog").fetchone() == (45,)
    connection.close()


async def test_what_depends_on_an_earlier_function_is_named_and_stays(earlier, database):
    connection, clock = earlier
    connection.execute("create view public.clock as select paceline.clock_us() as now")
    store = PostgresStore(server().url(database), clock=clock)

    with pytest.raises(StoreError, match=r"view clock depends on function paceline.clock_us\(\).*nothing was changed"):
        await store.open()

    assert connection.execute("select count(*) from public.clock").fetchone() == (1,)
    assert connection.execute(OLD_CLAIM).fetchall()
    connection.execute("drop view public.clock")
    await store.open()
    await store.close()


async def test_a_role_that_was_granted_the_tables_may_use_those_that_came(earlier, database):
    connection, clock = earlier
    connection.execute("drop role if exists earlier_role; create role earlier_role login")
    connection.execute(
        "grant usage on schema paceline to earlier_role;"
        "grant select, insert, update, delete on all tables in schema paceline to earlier_role;"
        "grant usage, select on all sequences in schema paceline to earlier_role"
    )
    owner = PostgresStore(server().url(database), clock=clock)
    await owner.open()
    await owner.close()

    store = PostgresStore(server().url(database, user="earlier_role"), clock=clock, migrate=False)
    claim = await store.claim(ask("line", 1, "mine"))

    rights = "select string_agg(privilege_type, ' ' order by privilege_type) from information_schema.role_table_grants "
    found = connection.execute(f"{rights} where grantee = 'earlier_role' and table_name = 'installed'").fetchone()
    assert found == ("DELETE INSERT SELECT UPDATE",)
    assert claim.now == clock.at
    await store.close()
    connection.execute("drop owned by earlier_role; drop role earlier_role")


async def test_a_role_that_does_not_own_the_tables_is_told_who_may_migrate(earlier, database):
    connection, clock = earlier
    connection.execute("drop role if exists newcomer; create role newcomer login")
    connection.execute(f"grant create on database {database} to newcomer; grant all on schema paceline to newcomer")
    connection.execute("grant all on all tables in schema paceline to newcomer")
    store = PostgresStore(server().url(database, user="newcomer"), clock=clock)

    with pytest.raises(StoreError, match=r"must be owner.*the role that made it; nothing was changed"):
        await store.open()

    assert connection.execute(OLD_CLAIM).fetchall()
    await store.close()
    connection.execute("drop owned by newcomer; drop role newcomer")


async def test_tables_that_somebody_uses_are_waited_for(earlier, database):
    connection, clock = earlier
    store = PostgresStore(server().url(database), clock=clock)
    connection.execute("begin")
    connection.execute(OLD_CLAIM.replace("null", f"{clock.at}", 1))
    (active,) = connection.execute("select count(*) from paceline.lease").fetchone()

    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0.5)
    assert not opening.done()
    connection.execute("commit")
    await asyncio.wait_for(opening, 10)

    assert (await store.counts("line"))["active"] == active
    await store.close()


async def test_tables_that_stay_in_use_are_no_reason_to_wait_for_ever(earlier, database, monkeypatch):
    connection, clock = earlier
    monkeypatch.setattr("paceline.stores.postgres.schema.PATIENCE", "100ms")
    store = PostgresStore(server().url(database), clock=clock)
    connection.execute("begin")
    connection.execute("update paceline.queue set paused = paused")
    began = time.monotonic()

    with pytest.raises(StoreError, match=r"could not be locked.*pg_stat_activity.*nothing was changed"):
        await store.open()

    assert time.monotonic() - began < 10
    connection.execute("commit")
    assert connection.execute(OLD_CLAIM).fetchall()
    await store.close()


async def test_without_leave_to_migrate_it_says_what_to_do(earlier, database):
    _, clock = earlier
    store = PostgresStore(server().url(database), clock=clock, migrate=False)

    with pytest.raises(SchemaMismatch, match=rf"has format \d.* needs {FORMAT}: run `paceline migrate`"):
        await store.open()

    await store.close()
