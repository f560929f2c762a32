"""The first call of a program may lie inside the caller's own transaction, which holds the file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
import time

import pytest

from paceline import App, Group, GroupFull, Queue, Rate, StoreUnavailable
from paceline.stores.sqlite import writer

from .helpers import start


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr(writer, "PATIENCE", 0.5)


@pytest.fixture(params=["fresh file", "fresh file with WAL", "fresh namespace"])
async def mine(request, opener, program) -> sqlite3.Connection:
    """A connection of the user to a file in which the namespace "new" is not known, in a transaction that writes."""
    if request.param == "fresh namespace":
        await opener().open()
    connection = program()
    if request.param == "fresh file with WAL":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.execute("INSERT INTO orders VALUES (1)")
    return connection


async def waiting(store) -> int:
    return (await store.counts("line"))["waiting"]


def tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


@pytest.mark.parametrize("limits", [[], [Rate(1, per="1h")]], ids=["no limit", "limit"])
async def test_a_commit_keeps_the_job_and_all_that_it_needs(mine, opener, limits):
    store = opener(namespace="new")
    queue = Queue("line", store=store, limits=limits)

    await queue.add("ship", 1, within=mine)
    await queue.add_many([("ship", 2), ("ship", 3)], within=mine)
    mine.commit()

    assert await waiting(opener(namespace="new")) == await waiting(store) == 3
    assert len(await start(store, 5)) == (1 if limits else 3)


@pytest.mark.parametrize("limits", [[], [Rate(1, per="1h")]], ids=["no limit", "limit"])
@pytest.mark.parametrize("again", ["within", "plain"])
async def test_a_rollback_leaves_nothing_and_the_next_call_makes_it_again(mine, opener, limits, again):
    store = opener(namespace="new")
    queue = Queue("line", store=store, limits=limits)
    known = tables(mine)
    await queue.add("ship", "undone", within=mine)
    mine.rollback()
    assert tables(mine) == known
    if "paceline_space" in known:
        assert mine.execute("SELECT count(*) FROM paceline_space WHERE name = 'new'").fetchone() == (0,)

    if again == "within":
        mine.execute("INSERT INTO orders VALUES (1)")
        await queue.add_many([("ship", 1), ("ship", 2)], within=mine)
        mine.commit()
    else:
        await queue.add_many([("ship", 1), ("ship", 2)])

    assert await waiting(opener(namespace="new")) == 2
    assert len(await start(store, 5)) == (1 if limits else 2)


async def test_a_refusal_leaves_the_callers_rows_and_nothing_of_ours(mine, opener):
    queue = Queue("line", store=opener(namespace="new"))
    known = tables(mine)

    with pytest.raises(GroupFull):
        await queue.add_many([("ship", 1, {"group": Group("tenant", max_size=1)})] * 2, within=mine)
    assert tables(mine) == known
    mine.commit()

    assert mine.execute("SELECT count(*) FROM orders").fetchone() == (1,)


async def test_a_cost_that_names_an_unknown_limit_is_warned_of_without_waiting(mine, opener, caplog):
    queue = Queue("line", store=opener(namespace="new"))

    with caplog.at_level(logging.WARNING):
        await queue.add("ship", 1, cost={"tokns": 2}, within=mine)
    mine.commit()

    assert "'tokns', which does not exist" in caplog.text
    assert await waiting(queue.store) == 1


async def test_two_stores_may_make_the_same_file_in_turn(mine, opener):
    one, other = opener(namespace="new"), opener(namespace="new")
    await Queue("line", store=one).add("ship", "undone", within=mine)
    mine.rollback()
    await Queue("line", store=other).add("ship", 1)

    await Queue("line", store=one).add("ship", 2, within=mine)
    mine.commit()

    assert await waiting(one) == await waiting(other) == 2
    assert one.clock.offset == other.clock.offset, "both go by the anchor that was committed"


async def test_a_call_that_changes_nothing_leaves_no_transaction_open(opener, program):
    store = opener()
    queue = Queue("line", store=store, limits=[Rate(1, per="1h")])
    await queue.add("ship", 1)
    mine = program()

    await opener().set_limits(await store.limits(), mine)

    assert not mine.in_transaction


async def test_a_plain_call_beside_the_callers_own_transaction_names_the_remedy(mine, opener):
    queue = Queue("line", store=opener(namespace="new"))

    with pytest.raises(StoreUnavailable, match=r"a transaction of this one that has not ended.*within="):
        await queue.add("ship")

    mine.rollback()
    await queue.add("ship")


@pytest.mark.parametrize("fresh", ["file", "namespace"])
def test_plain_code_may_begin_inside_its_transaction(path, fresh):
    url = f"sqlite:///{path}?durability=normal"
    if fresh == "namespace":
        asyncio.run(App(url).queue().counts())
    app = App(url, namespace="new")
    app.limit("pace", Rate(1000, per="1s"))

    @app.task()
    async def confirm(order: int) -> None: ...

    db = sqlite3.connect(path)
    db.execute("CREATE TABLE orders (id INTEGER)")
    began = time.monotonic()
    for end in (db.rollback, db.commit):
        db.execute("INSERT INTO orders VALUES (1)")
        confirm.using(within=db).enqueue_sync(1)
        end()

    assert time.monotonic() - began < writer.PATIENCE
    assert asyncio.run(app.queue().counts())["waiting"] == 1
    db.close()
    asyncio.run(app.close())


DJANGO = """
import asyncio, sys
import django
from django.conf import settings
path, namespace, limited = sys.argv[1:]
settings.configure(USE_TZ=True, DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": path}})
django.setup()
from django.db import connection, transaction
from paceline import App, Rate
from paceline.stores.sqlite import writer

writer.PATIENCE = 0.5
if namespace != "default":
    asyncio.run(App(f"sqlite:///{path}").queue().counts())
app = App(f"sqlite:///{path}", namespace=namespace)
if limited:
    app.limit("pace", Rate(1000, per="1s"))

@app.task()
async def confirm(order: int) -> None: ...

connection.cursor().execute("CREATE TABLE orders (id INTEGER)")
for failing in (True, False):
    try:
        with transaction.atomic():
            connection.cursor().execute("INSERT INTO orders VALUES (1)")
            confirm.using(within=connection).enqueue_sync(1)
            confirm.using(within=connection).enqueue_sync(2)
            if failing:
                raise KeyError
    except KeyError:
        pass
confirm.using(within=connection).enqueue_sync(3)
confirm.using(within=connection).enqueue_sync(4)
assert asyncio.run(app.queue().counts())["waiting"] == 4
asyncio.run(app.close())
print("good")
"""


@pytest.mark.parametrize("limited", ["", "limited"])
@pytest.mark.parametrize("namespace", ["default", "new"])
def test_django_may_begin_inside_atomic(path, namespace, limited):
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, str(path), namespace, limited],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("good\n", "")
