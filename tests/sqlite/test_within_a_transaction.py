"""Enqueue inside the caller's own transaction: a job is there if and only if the caller commits."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from paceline import ConfigError, Group, GroupFull, Limit, NeverFits, Queue, Rate, StoreUnavailable, Unique, Worker
from paceline.stores.sqlite import writer

from .helpers import Done, eventually, start, working


@pytest.fixture
def queue(store) -> Queue:
    return Queue("line", store=store)


@pytest.fixture
def mine(store, program) -> sqlite3.Connection:
    """The user's connection, with a table of the user's own."""
    connection = program()
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    connection.commit()
    return connection


async def waiting(queue: Queue) -> int:
    return (await queue.counts())["waiting"]


def orders(program) -> int:
    """How many orders everybody else can see."""
    return program().execute("SELECT count(*) FROM orders").fetchone()[0]


# commit and rollback


async def test_a_job_is_seen_when_the_caller_commits_and_not_before(queue, mine, store, program):
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")
    job = await queue.add("ship", {"order": 1}, within=mine)

    assert job.state == "waiting"
    assert (await waiting(queue), await queue.get(job.id), orders(program)) == (0, None, 0)

    mine.commit()
    assert (await waiting(queue), (await queue.get(job.id)).data, orders(program)) == (1, {"order": 1}, 1)
    assert [record.id for record in await start(store)] == [job.id]


async def test_a_rollback_leaves_neither_job_nor_row(queue, mine, store, program):
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")
    job = await queue.add("ship", within=mine)

    mine.rollback()

    assert (await queue.get(job.id), orders(program), await start(store)) == (None, 0, [])
    assert set((await queue.counts()).values()) == {0}


async def test_after_a_rollback_ids_unique_keys_and_places_in_a_group_are_free_again(queue, mine):
    options = {"job_id": "one", "unique": Unique("key"), "group": Group("tenant", max_size=1)}
    await queue.add("ship", "undone", within=mine, **options)
    mine.rollback()

    job = await queue.add("ship", "done", **options)

    assert (job.id, job.data, await waiting(queue)) == ("one", "done", 1)
    with pytest.raises(GroupFull):
        await queue.add("ship", group=Group("tenant", max_size=1))


async def test_a_connection_that_is_closed_without_a_commit_leaves_nothing(queue, mine):
    await queue.add("ship", within=mine)
    mine.close()

    assert await waiting(queue) == 0


async def test_add_many_inside_is_one_with_the_callers_rows(queue, mine, store, program):
    with mine:
        mine.execute("INSERT INTO orders VALUES (1, 'tea')")
        jobs = await queue.add_many(
            [("ship", 1), ("ship", 2, {"group": "tenant"}), ("ship", 3, {"delay": "1h"})], within=mine
        )
        mine.execute("INSERT INTO orders VALUES (2, 'milk')")

    counts = await queue.counts()
    assert (counts["waiting"], counts["delayed"], orders(program)) == (2, 1, 2)
    assert {record.id for record in await start(store, 5)} == {job.id for job in jobs[:2]}


async def test_several_calls_and_queues_in_one_transaction_go_together(queue, mine, store):
    other = Queue("other", store=store)
    for number in range(3):
        await queue.add("ship", number, within=mine)
        await other.add("bill", number, within=mine)
    assert (await waiting(queue), await waiting(other)) == (0, 0)

    mine.commit()

    assert (await waiting(queue), await waiting(other)) == (3, 3)
    assert [record.data for record in await start(store, 5)] == [b"0", b"1", b"2"]


async def test_a_transaction_sees_its_own_jobs_when_it_adds_the_same_id_or_key_again(queue, mine):
    first = await queue.add("ship", 1, within=mine, job_id="one", unique=Unique("key"))
    by_id = await queue.add("ship", 2, within=mine, job_id="one")
    by_key = await queue.add("ship", 3, within=mine, unique=Unique("key"))
    mine.commit()

    assert {first.id, by_id.id, by_key.id} == {"one"}
    assert await waiting(queue) == 1


async def test_jobs_inside_and_outside_stand_in_the_order_of_their_commits(queue, mine, store):
    await queue.add("ship", "before")
    await queue.add("ship", "inside", within=mine)
    mine.commit()
    await queue.add("ship", "after")

    assert [record.data for record in await start(store, 5)] == [b'"before"', b'"inside"', b'"after"']


async def test_a_savepoint_of_the_caller_takes_its_jobs_back(queue, mine):
    mine.execute("BEGIN")
    await queue.add("ship", "kept", within=mine)
    mine.execute("SAVEPOINT maybe")
    await queue.add("ship", "undone", within=mine)
    mine.execute("ROLLBACK TO maybe")
    await queue.add("ship", "kept too", within=mine)
    mine.commit()

    assert [job.data for job in await queue.list()] == ["kept", "kept too"]


# kinds of connections


@pytest.mark.parametrize("factory", [sqlite3.Row, lambda cursor, row: {"row": row}], ids=["Row", "dict"])
async def test_a_row_factory_of_the_caller_is_not_in_the_way_and_stays(queue, mine, factory):
    mine.row_factory = factory
    await queue.add("ship", 1, within=mine)
    await queue.add("ship", 2, within=mine)
    mine.commit()

    assert await waiting(queue) == 2
    assert mine.row_factory is factory


@pytest.mark.parametrize("level", [None, "", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
async def test_a_connection_without_a_transaction_begins_one_that_the_caller_ends(queue, mine, level):
    mine.isolation_level = level
    assert not mine.in_transaction

    await queue.add("ship", "undone", within=mine)
    assert mine.in_transaction
    mine.rollback()
    await queue.add("ship", "done", within=mine)
    mine.commit()

    assert [job.data for job in await queue.list()] == ["done"]


async def test_a_caller_who_only_read_before_can_still_add(queue, mine):
    mine.execute("BEGIN")
    mine.execute("SELECT count(*) FROM orders").fetchone()
    await queue.add("ship", within=mine)
    mine.commit()

    assert await waiting(queue) == 1


@pytest.mark.parametrize("wrong", [object(), 7, "jobs.db"], ids=lambda wrong: type(wrong).__name__)
async def test_what_is_no_connection_is_refused(queue, wrong):
    with pytest.raises(ConfigError, match=r"within=.*expected an sqlite3 connection"):
        await queue.add("ship", within=wrong)
    with pytest.raises(ConfigError, match="within="):
        await queue.add_many([("ship", 1)], within=wrong)

    assert await waiting(queue) == 0


async def test_a_connection_to_another_file_is_refused_and_both_files_named(queue, program, path, tmp_path):
    elsewhere = program(tmp_path / "other.db")
    elsewhere.execute("CREATE TABLE mine (a)")

    with pytest.raises(ConfigError, match=r"other\.db.*jobs\.db"):
        await queue.add("ship", within=elsewhere)

    assert not elsewhere.in_transaction
    assert await waiting(queue) == 0


async def test_a_connection_to_memory_is_refused(queue, program):
    with pytest.raises(ConfigError, match="memory"):
        await queue.add("ship", within=program(":memory:"))


async def test_the_same_file_by_another_name_is_the_same_file(queue, program, path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    mine = program(tmp_path / "link.db")

    await queue.add("ship", within=mine)
    mine.commit()

    assert await waiting(queue) == 1


async def test_a_connection_that_is_closed_or_of_another_thread_is_refused(queue, path):
    with ThreadPoolExecutor(1) as other_thread:
        closed = sqlite3.connect(path)
        closed.close()
        foreign = other_thread.submit(sqlite3.connect, path).result()
        for wrong in (closed, foreign):
            with pytest.raises(ConfigError, match="within="):
                await queue.add("ship", within=wrong)
        other_thread.submit(foreign.close).result()

    await queue.add("ship")
    assert await waiting(queue) == 1


async def test_a_text_factory_of_the_caller_is_not_in_the_way_and_stays(queue, mine):
    mine.text_factory = bytes
    await queue.add("ship", "ümläut", within=mine, group="tenant", job_id="one")
    await queue.add("ship", "again", within=mine, job_id="one")
    mine.commit()

    assert mine.text_factory is bytes
    assert [(job.data, job.group) for job in await queue.list()] == [("ümläut", "tenant")]


# refusals inside


async def refuse(queue: Queue, how: type[Exception], **options) -> None:
    if how is GroupFull:
        job = ("ship", None, {"group": Group("tenant", max_size=1)})
        with pytest.raises(GroupFull):
            await queue.add_many([job, job], **options)
    else:
        with pytest.raises(NeverFits):
            await queue.add("ship", cost=100, **options)


@pytest.fixture
async def limit(store) -> None:
    await store.set_limits([Limit("api", Rate(10, per="1h"))])


@pytest.mark.parametrize("how", [GroupFull, NeverFits])
async def test_a_refusal_leaves_the_callers_transaction_usable_and_nothing_behind(
    queue, mine, store, program, limit, how
):
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")
    await refuse(queue, how, within=mine)

    assert mine.in_transaction
    mine.execute("INSERT INTO orders VALUES (2, 'milk')")
    kept = await queue.add("ship", "kept", within=mine)
    mine.commit()

    assert (orders(program), await waiting(queue)) == (2, 1)
    assert [record.id for record in await start(store, 5)] == [kept.id]


@pytest.mark.parametrize("how", [GroupFull, NeverFits])
async def test_after_a_refusal_inside_a_commit_new_queues_can_still_be_made(queue, mine, store, limit, how):
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")
    await refuse(queue, how, within=mine)
    mine.commit()

    for name in ("second", "third"):
        await Queue(name, store=store).add("ship", group="tenant")
    await queue.add("ship")

    assert [len(await start(store, 5, queue=name)) for name in ("line", "second", "third")] == [1, 1, 1]


@pytest.mark.parametrize("how", [GroupFull, NeverFits])
async def test_a_refusal_without_a_transaction_leaves_none_open(queue, mine, limit, how):
    await refuse(queue, how, within=mine)

    assert not mine.in_transaction, "nobody would end it, and everybody else is locked out"
    await asyncio.wait_for(queue.add("ship"), 5)


async def test_a_full_disk_is_called_so_and_leaves_nothing_of_the_job(queue, mine, store, program):
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")
    (pages,) = mine.execute("PRAGMA page_count").fetchone()
    mine.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreUnavailable, match="full"):
        await queue.add_many([("ship", "x" * 3000)] * 50, within=mine)
    mine.commit()

    assert (await waiting(queue), await start(store, 5)) == (0, [])
    await queue.add("ship")
    assert await waiting(queue) == 1


async def test_a_file_that_another_program_holds_is_called_so_and_leaves_no_transaction(queue, program):
    other, mine = program(), program(timeout=0.1)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="locked"):
        await queue.add("ship", within=mine)
    assert not mine.in_transaction

    other.rollback()
    await queue.add("ship", within=mine)
    mine.commit()
    assert await waiting(queue) == 1


async def test_a_caller_whose_view_is_old_is_refused_and_can_begin_again(queue, mine):
    mine.execute("BEGIN")
    mine.execute("SELECT count(*) FROM orders").fetchone()
    await queue.add("ship", "meanwhile")

    with pytest.raises(StoreUnavailable):
        await queue.add("ship", "too late", within=mine)
    mine.rollback()
    await queue.add("ship", "again", within=mine)
    mine.commit()

    assert [job.data for job in await queue.list()] == ["meanwhile", "again"]


# the store and its caller in one process


async def test_the_very_first_use_of_a_store_may_be_inside_a_transaction(queue, mine, opener, program, monkeypatch):
    monkeypatch.setattr(writer, "PATIENCE", 1.0)  # the caller holds the file, and waits for the store
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")

    await Queue("line", store=opener()).add("ship", within=mine)
    mine.commit()

    assert (await waiting(queue), orders(program)) == (1, 1)


async def test_limits_that_are_not_written_yet_do_not_wait_for_the_callers_transaction(
    mine, store, program, monkeypatch
):
    monkeypatch.setattr(writer, "PATIENCE", 1.0)
    queue = Queue("line", store=store, limits=[Rate(1, per="1h")])
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")

    await queue.add_many([("ship", 1), ("ship", 2)], within=mine)
    mine.commit()

    assert (await waiting(queue), orders(program)) == (2, 1)
    assert len(await start(store, 5)) == 1, "the limit holds"


async def test_limits_that_went_with_a_rollback_are_declared_by_the_next_call(mine, store, opener):
    queue = Queue("line", store=store, limits=[Rate(1, per="1h")])
    await queue.add("ship", "undone", within=mine)
    mine.rollback()
    assert await store.limits() == []

    await queue.add_many([("ship", 1), ("ship", 2)], within=mine)
    mine.commit()

    assert [limit.name for limit in await opener().limits()] == ["queue:line"]
    assert len(await start(store, 5)) == 1


async def test_the_very_first_use_of_a_file_may_be_inside_a_transaction(opener, program, monkeypatch):
    monkeypatch.setattr(writer, "PATIENCE", 0.5)
    mine = program()
    mine.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    mine.commit()
    mine.execute("INSERT INTO orders VALUES (1, 'tea')")
    queue = Queue("line", store=opener())

    await queue.add("ship", within=mine)
    mine.commit()

    assert await waiting(queue) == 1


async def test_others_who_write_wait_for_the_caller_and_then_go_on(queue, mine):
    await queue.add("ship", "inside", within=mine)
    outside = [asyncio.create_task(queue.add("ship", number)) for number in range(5)]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in outside)

    mine.commit()
    await asyncio.wait_for(asyncio.gather(*outside), 10)

    assert await waiting(queue) == 6


async def test_a_sleeping_worker_starts_the_job_soon_after_the_commit(queue, mine, store):
    done = Done()

    async with working(Worker("line", done, store=store)):
        await asyncio.sleep(0.1)
        await queue.add("ship", 1, within=mine)
        await asyncio.sleep(0.4)
        assert done.data == []
        mine.commit()
        committed = time.monotonic()
        await eventually(lambda: done.data)

    assert done.at[0] - committed < 1.5


async def test_a_sleeping_worker_does_not_hear_of_a_rollback(queue, mine, store):
    done = Done()

    async with working(Worker("line", done, store=store)):
        await queue.add("ship", "undone", within=mine)
        mine.rollback()
        await asyncio.sleep(0.3)
        (await queue.add("ship", "done"))
        await eventually(lambda: done.data)

    assert done.data == ["done"]
