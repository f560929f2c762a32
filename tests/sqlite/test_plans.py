"""Statements on the way of a job never read a whole table: SQLite is asked, on a file with many of everything."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from paceline import Concurrency, Limit, Queue, Rate, Unique, open_store
from paceline.stores.interface import Finish, Outcome, Target, WorkerRecord
from paceline.stores.sqlite.statements import statements

from .helpers import MINUTE, start

FILES = ("jobs", "lanes", "limits", "space")

BIG = {"job", "life", "wait", "lane", "group", "meter", "spent", "delayed", "unique", "start", "permit"}
"""Tables that grow with jobs, groups or starts."""

MAY_SCAN = {
    "jobs.in_lanes": "drain: every waiting job of a queue goes",
    "lanes.add_homes": "the scope of a limit changed, or a task was paused: lanes move to another class",
    "lanes.move_waits": "likewise",
    "lanes.drop_waits": "likewise",
    "lanes.drop_lanes": "likewise, and when a queue is obliterated",
    "lanes.count_lanes": "likewise",
    "lanes.count_class": "likewise",
    "lanes.forget_groups": "once a minute: groups without jobs are dropped",
    "lanes.drop_groups": "a queue is obliterated",
    "lanes.groups_waiting": "explain, read by people: one number per group",
}
"""The few statements that may read a whole table, and why that hurts nobody."""

MAY_READ_MUCH = {
    **MAY_SCAN,
    "jobs.in_queue": "obliterate: every job of a queue goes",
    "jobs.in_state": "clean and retry_jobs: all jobs of a state were asked for",
    "jobs.failed_or_cancelled": "likewise",
    "jobs.delayed": "drain and promote_jobs: every delayed job moves",
    "jobs.starts": "queue.starts(): the whole log was asked for",
    "jobs.drop_starts": "a queue is obliterated",
    "jobs.starts_since": "queue.starts(since=…), read by people",
    "jobs.forget_starts": "once a minute",
    "lanes.shut": "a limit has other numbers: lanes that were shut look again",
    "limits.of_limit": "a limit has other numbers, or is released as a whole: all its keys are looked at",
    "limits.idle": "once a minute: meters that nobody needs",
    "limits.drop_all": "a limit is dropped",
    "limits.drop_all_spent": "likewise",
}
"""Statements that may read all of a queue, a class, a limit or a namespace, and when they run."""

ALIKE = {"space", "queue", "class", "state"}
"""Columns in which all rows of a busy file may be alike: alone they narrow nothing down."""

SHORT = {"paceline_life_lease", "paceline_meter_reserved", "paceline_permit_lease"}
"""Indexes that hold only what runs now: as many entries as there are slots, not as there are jobs."""


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """How SQLite goes about each statement, on a file with many of everything."""
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    asyncio.run(fill(f"sqlite:///{path}"))
    db = sqlite3.connect(path)
    few = [table for table in sorted(BIG) if db.execute(f"SELECT count(*) FROM paceline_{table}").fetchone()[0] < 15]
    assert few == []
    yield {f"{file}.{name}": plan(db, sql) for file in FILES for name, sql in statements(file).items()}
    db.close()


async def fill(url: str) -> None:
    store = open_store(url, durability="normal")
    tenant = Limit("tenant", Rate(2, per="1h") & Concurrency(5), by="group", tasks=["work"])
    slots = Limit("slots", Concurrency(20), tasks=["nothing"])
    await store.set_limits([tenant, slots, Limit("all", Rate(900, per="1h"))])
    for name in ("line", "second"):
        queue = Queue(name, store=store)
        jobs: list[Any] = [("work", n, {"group": f"g{n % 200}", "unique": Unique(f"k{n}")}) for n in range(800)]
        jobs += [("work", n, {"delay": "1h", "group": f"g{n % 20}"}) for n in range(100)]
        jobs += [("other", n, {"priority": n % 3}) for n in range(100)]
        await queue.add_many(jobs)
        held = [record for _ in range(4) for record in await start(store, 60, queue=name)]
        outcomes = [Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED]
        await store.finish([Finish(id=j.id, fence=j.fence, outcome=outcomes[j.fence % 3]) for j in held[:150]])
    await store.register(WorkerRecord(id="worker", queues=("line",)))
    for number in range(20):
        await store.acquire([Target("slots")], f"permit {number}", MINUTE)
    await store.close()


def plan(db: sqlite3.Connection, sql: str) -> list[str]:
    names = re.findall(r":([a-z_]+)", re.sub(r"'[^']*'", "", sql))
    values: Any = {name: {"homes": "{}", "paused": "[]"}.get(name, 1) for name in names}
    if not names:
        marks = [match.start() for match in re.finditer(r"\?", sql)]
        values = ["[1, 2]" if sql[:mark].endswith("json_each(") else 1 for mark in marks]
    rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    return [with_table(step, sql) for _, _, _, step in rows]


def with_table(step: str, sql: str) -> str:
    """A step of a plan, with the name of the table instead of its alias."""
    verb, _, rest = step.partition(" ")
    if verb not in ("SCAN", "SEARCH"):
        return step
    alias, _, rest = rest.partition(" ")
    found = re.search(rf"\b(paceline_\w+) (?:AS )?{alias}\b", sql)
    table = found[1] if found and found[1] != "paceline_jobs" else alias
    if "paceline_jobs" in sql:
        # The view of jobs and what happened to them.
        table = {"j": "paceline_job", "l": "paceline_life"}.get(alias, table) if table == alias else table
    return f"{verb} {table} {rest}".strip()


def is_scan(step: str) -> bool:
    return step.startswith("SCAN paceline_") and step.split()[1].removeprefix("paceline_") in BIG


def is_wide(step: str) -> bool:
    """True for a search that only says which queue, class or namespace."""
    found = re.fullmatch(r"SEARCH paceline_(\w+) (.*)\((.*)\)", step)
    if found is None or found[1] not in BIG or any(index in found[2] for index in SHORT):
        return False
    return {re.split(r"[=<>]", column)[0] for column in found[3].split(" AND ")} <= ALIKE


def where(plans: dict[str, list[str]], wrong: Any) -> dict[str, list[str]]:
    """The statements of which a step is wrong."""
    return {name: steps for name, steps in plans.items() if any(map(wrong, steps))}


def test_no_statement_reads_a_whole_table_but_those_that_may(plans):
    found = where(plans, is_scan)

    assert {name: steps for name, steps in found.items() if name not in MAY_SCAN} == {}


def test_statements_on_the_way_of_a_job_do_not_read_a_whole_queue_class_or_namespace_either(plans):
    found = where(plans, is_wide)
    paged = {name for name in found if "LIMIT" in statements(name.split(".")[0])[name.split(".")[1]]}

    assert {name: steps for name, steps in found.items() if name not in MAY_READ_MUCH and name not in paged} == {}


def test_pages_are_read_in_the_order_of_an_index_and_not_sorted(plans):
    sorts = where(plans, lambda step: "TEMP B-TREE" in step)
    paged = [name for name in sorts if "LIMIT" in statements(name.split(".")[0])[name.split(".")[1]]]

    assert {name: sorts[name] for name in paged if name != "jobs.page_active"} == {}, "(few jobs are active)"


def test_every_exception_is_about_a_statement_that_exists(plans):
    assert {name for name in (*MAY_SCAN, *MAY_READ_MUCH) if name not in plans} == set()


def test_what_would_be_a_scan_is_found_by_these_tests(plans, tmp_path):
    db = sqlite3.connect(tmp_path / "other.db")
    db.executescript("CREATE TABLE paceline_wait (lane, n); CREATE TABLE paceline_job (n INTEGER PRIMARY KEY, space)")
    scans = plan(db, "SELECT * FROM paceline_wait w WHERE w.lane = ?")
    db.execute("CREATE INDEX by_space ON paceline_job (space)")
    wide = plan(db, "SELECT * FROM paceline_job AS j WHERE j.space = ?")
    good = plan(db, "SELECT * FROM paceline_job j WHERE j.n = ?")
    db.close()

    assert [is_scan(step) for step in scans] == [True]
    assert [is_wide(step) for step in wide] == [True]
    assert [is_scan(step) or is_wide(step) for step in good] == [False]
