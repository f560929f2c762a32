"""What people meet when something is wrong: an error that says it, an exit code, and nothing lost."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paceline import Job, Queue, Worker
from paceline.errors import SchemaMismatch, StoreError, StoreUnavailable
from paceline.job import Move, NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres import calls
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "postgres.md"
FULL = """create or replace function public.no_room() returns trigger language plpgsql as $$ begin
raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
create trigger no_room before insert on paceline.{table} for each row execute function public.no_room()"""


def ask(claim_id: str = "", slots: int = 5) -> Ask:
    return Ask(queues=("line",), slots=slots, worker="w", lease=60_000_000, claim_id=claim_id)


# a server that is full


async def test_a_job_that_finds_no_room_on_the_disk_is_refused_and_can_be_added_later(store, sql):
    sql.execute(FULL.format(table="job"))
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.insert([NewJob("a", "line", "work")])
    sql.execute("drop trigger no_room on paceline.job")

    (added,) = await store.insert([NewJob("a", "line", "work")])

    assert not added.existed
    assert (await store.counts("line"))["waiting"] == 1


async def test_a_claim_that_finds_no_room_on_the_disk_starts_nothing_and_charges_nothing(store, sql):
    await store.set_limits([Limit("all", Rate(5, per="1h"))])
    await store.insert([NewJob("a", "line", "work")])
    sql.execute(FULL.format(table="lease"))
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.claim(ask("one"))
    sql.execute("drop trigger no_room on paceline.lease")

    assert (await store.usage("all", None)).used == 0
    assert await store.starts("line", None) == []
    assert [job.id for job in (await store.claim(ask("one"))).jobs] == ["a"]


async def test_an_end_that_finds_no_room_on_the_disk_is_not_forgotten(store, sql):
    queue = Queue("line", store=store)
    ended = asyncio.Event()

    async def handler(job: Job[None]) -> None:
        ended.set()

    async with Worker("line", handler, store=store):
        sql.execute(FULL.format(table="done"))
        job = await queue.add("work")
        await ended.wait()
        await asyncio.sleep(0.3)
        sql.execute("drop trigger no_room on paceline.done")
        await job.result(timeout=20)
    assert len(await queue.starts()) == 1


# a server that is not there yet


async def test_a_worker_whose_server_comes_later_waits_for_it(own_server):
    own_server.stop("fast")
    store = open_store(own_server.url())
    done = asyncio.Event()

    async def handler(job: Job[None]) -> None:
        done.set()

    with pytest.raises(StoreUnavailable):
        await store.open()
    await asyncio.to_thread(own_server.start)
    async with Worker("line", handler, store=store):
        await Queue("line", store=store).add("work")
        async with asyncio.timeout(10):
            await done.wait()
    await store.close()


# a schema of another time


async def test_an_older_schema_is_refused_where_nobody_may_migrate(sql, url):
    sql.execute("drop schema if exists past cascade; create schema past; create table past.version (number int)")
    sql.execute("insert into past.version values (0)")
    store = open_store(url, schema="past", migrate=False)

    with pytest.raises(SchemaMismatch, match="paceline migrate"):
        await store.open()

    await store.close()
    sql.execute("drop schema past cascade")


async def test_functions_that_are_gone_are_no_riddle(sql, url):
    store = PostgresStore(url, schema="broken")
    await store.insert([NewJob("a", "line", "work")])
    sql.execute(f"drop function {store.names.functions}.next_lease_end")

    with pytest.raises(SchemaMismatch, match="paceline migrate"):
        await store.claim(ask())

    await store.close()
    sql.execute(f"drop schema broken cascade; drop schema {store.names.functions} cascade")


# the command


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("postgresql://postgres@/nowhere?host={folder}", "nowhere", 4),
        ("postgresql://nobody_known@/postgres?host={folder}", "nobody_known", 4),
        ("postgresql://little@/postgres?host={folder}", "permission|may not", 1),
        ("postgresql://postgres@/postgres?host={folder}&nonsense=1", "nonsense", 2),
        ("postgresql://postgres@/postgres?host=/no/such/folder", "/no/such/folder", 4),
    ],
    ids=["database", "role", "rights", "option", "folder"],
)
def test_the_command_ends_with_an_error_that_says_what_is_wrong(sql, url, said, code):
    sql.execute("drop role if exists little; create role little login")

    done = migrate(url.format(folder=server().folder), "--schema", "forbidden")

    sql.execute("drop role little")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert re.search(said, done.stderr), done.stderr


def test_the_command_refuses_a_newer_schema(sql):
    sql.execute("drop schema if exists newer cascade; create schema newer; create table newer.version (number int)")
    sql.execute("insert into newer.version values (99)")

    done = migrate(server().url(), "--schema", "newer")

    sql.execute("drop schema newer cascade")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "99" in done.stderr


def migrate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline", "migrate", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# the least that a role needs


@pytest.fixture
async def little(sql: psycopg.Connection[Any]) -> AsyncIterator[PostgresStore]:
    """A store of the role that the docs make, with their own SQL."""
    (block,) = re.findall(r"```sql\n(create role jobs login;.*?)```", DOCS.read_text(), re.S)
    sql.execute("drop role if exists jobs")
    sql.execute(block)
    store = PostgresStore(server().url(user="jobs"), migrate=False)
    yield store
    await store.close()
    sql.execute("drop owned by jobs; drop role jobs")


async def test_the_role_of_the_docs_can_do_everything_but_migrate(little):
    await little.open()
    await little.set_limits([Limit("tenant", Rate(9, per="1h") & Concurrency(3), by="group")])
    await little.insert([NewJob(f"{n}", "line", "work", group="g", unique=f"{n}", group_max_size=9) for n in range(6)])
    claim = await little.claim(ask("one", 3))
    await little.extend("w", [], 60_000_000)
    ends = [Outcome.COMPLETED, Outcome.FAILED, Outcome.RETRY]
    await little.finish([Finish(id=j.id, fence=j.fence, outcome=end) for j, end in zip(claim.jobs, ends, strict=True)])
    await little.move(["3"], Move.CANCEL)
    await little.pause("line", None, "g", True)
    await little.pause("line", None, "g", False)
    listener = little.listen(["line"])
    await little.release("tenant", None)
    await little.prune()
    assert await little.drain("line") == 3
    assert await little.obliterate("line", force=True) == 3
    await little.drop_limit("tenant")
    listener.close()

    mine = PostgresStore(server().url(user="jobs"), schema="mine")
    with pytest.raises(StoreError, match="may not"):
        await mine.open()
    await mine.close()


# connections


async def test_what_the_url_and_the_options_say_is_kept_by_every_connection(sql, url):
    store = PostgresStore(f"{url}&sslmode=allow&sslrootcert=system.pem", keepalives_idle=7)
    await store.open()
    async with store.connections.one() as first:
        said = [first.info.get_parameters()]
    sql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'paceline'")
    await store.counts("line")
    async with store.connections.one() as second:
        said.append(second.info.get_parameters())
    with store.connections.connect_plainly() as ear:
        said.append(ear.info.get_parameters())

    assert [(each["sslmode"], each["sslrootcert"], each["keepalives_idle"]) for each in said] == [
        ("allow", "system.pem", "7")
    ] * 3
    await store.close()


async def test_a_worker_consumes_again_after_all_its_connections_were_cut(store, stranger, sql):
    done: dict[str, asyncio.Event] = {f"{number}": asyncio.Event() for number in range(4)}

    async def handler(job: Job[None]) -> None:
        done[job.id].set()

    other = stranger(store.connections.url)
    async with Worker("line", handler, store=store):
        for number in done:
            await asyncio.sleep(0.2)  # it sleeps soundly: only its notification connection can tell it of the cut
            sql.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'paceline%'"
            )
            began = time.monotonic()
            await Queue("line", store=other).add("work", job_id=number)
            async with asyncio.timeout(5):
                await done[number].wait()
            print(f"consumed again after {time.monotonic() - began:.2f} s")


async def test_a_pool_that_drops_all_session_state_changes_nothing(url, monkeypatch):
    fetch = calls.fetch

    async def fetch_and_forget(connection: Any, text: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        rows = await fetch(connection, text, values)
        await connection.execute("discard all")
        return rows

    monkeypatch.setattr(calls, "fetch", fetch_and_forget)
    store = open_store(url, pooler=True)
    queue = Queue("line", store=store, limits=[Limit("all", Rate(10, per="200ms") & Concurrency(3))])
    ran: list[str] = []

    async def handler(job: Job[None]) -> None:
        ran.append(job.id)

    await queue.add_many(("work", None, {"job_id": f"{number}", "group": f"g{number % 3}"}) for number in range(30))
    async with asyncio.timeout(20):
        await Worker("line", handler, store=store).run(until_empty=True)

    assert sorted(ran, key=int) == [f"{number}" for number in range(30)]
    starts = [start.at for start in await queue.starts()]
    assert all((later - start).total_seconds() >= 0.2 for start, later in zip(starts, starts[10:], strict=False))
    await store.close()
