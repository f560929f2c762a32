"""What the gate needs of PostgreSQL alone: plans made in time, how long a call waited, guards of earlier releases."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import psycopg
import pytest

from paceline.clock import NEVER
from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores.interface import Ask, Begun, Lease, Target
from paceline.stores.postgres.calls import Sending
from paceline.stores.postgres.names import step_text
from paceline.stores.postgres.texts import CLAIM, WARM_UP

GUARDED = Limit("mail", Rate(100, per="1s"))


def ask(slots: int = 1, **more: Any) -> Ask:
    return Ask(queues=("line",), slots=slots, worker="w", lease=60_000_000, **more)


def jobs(number: int, data: bytes = b"") -> list[NewJob]:
    return [NewJob(f"{each}", "line", "work", data=data) for each in range(number)]


# plans


def rows_of(sql: Any) -> dict[str, int]:
    names = [
        name
        for (name,) in sql.execute(
            "select relname from pg_class where relnamespace = 'paceline'::regnamespace and relkind = 'r'"
        ).fetchall()
    ]
    return {name: sql.execute(f"select count(*) from paceline.{name}").fetchone()[0] for name in names}


async def test_warming_up_goes_through_all_of_it_and_leaves_nothing(store, sql):
    await store.set_limits([GUARDED])
    await store.insert(jobs(3))
    before = rows_of(sql)

    assert sql.execute(WARM_UP).fetchone() == ("undone",)

    assert rows_of(sql) == before


async def test_a_connection_warms_up_once_and_before_its_first_claim(store, monkeypatch):
    texts: list[str] = []
    about = store.calls.text
    monkeypatch.setattr(store.calls, "text", lambda query: texts.append(query) or about(query))

    for _ in range(3):
        await store.claim(ask())

    assert [text for text in texts if text in (WARM_UP, CLAIM)] == [WARM_UP, CLAIM, CLAIM, CLAIM]


# how long a call waited


@pytest.fixture
def locked(url: str):
    """`locked(text)`: somebody holds these rows for a fifth of a second."""
    threads: list[threading.Thread] = []

    def hold(text: str) -> None:
        held = threading.Event()

        def work() -> None:
            with psycopg.connect(url) as other:
                other.execute(text)
                held.set()
                time.sleep(0.2)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        held.wait(5)

    yield hold
    for thread in threads:
        thread.join()


async def test_a_claim_that_waits_for_a_lock_says_so(store, locked):
    await store.set_limits([GUARDED])
    await store.insert(jobs(2))
    quick = await store.claim(ask())
    locked("select from paceline.queue for update")

    slow = await store.claim(ask())

    assert len(quick.jobs) == len(slow.jobs) == 1
    assert 100_000 < slow.waited < 5_000_000


async def test_a_permit_that_waits_for_a_lock_says_so(store, locked):
    await store.set_limits([Limit.for_code("api", Rate(100, per="1s"))])
    await store.acquire([Target("api")], "first", 1_000_000)
    locked("select from paceline.meter for update")

    grant = await store.acquire([Target("api")], "second", 1_000_000)

    assert grant.granted
    assert 100_000 < grant.waited < 5_000_000


async def test_a_claim_that_is_asked_again_was_stamped_before(store):
    await store.set_limits([GUARDED])
    await store.insert(jobs(1))
    await store.claim(ask(claim_id="one"))

    again = await store.claim(ask(claim_id="one"))

    assert [job.guard for job in again.jobs] == [20_000]
    assert again.waited == 0


def test_what_passes_before_a_call_is_sent_is_waited():
    sending = Sending()
    assert sending.waited() == 0
    sending.sent += 5_000_000

    assert sending.waited() == 5_000


# guards


async def test_jobs_that_do_not_fit_one_answer_have_their_guards(store):
    await store.set_limits([GUARDED])
    await store.insert(jobs(8, data=b"x" * 20_000))

    claim = await store.claim(ask(8))

    assert [(job.id, job.guard, len(job.data)) for job in claim.jobs] == [(f"{n}", 20_000, 20_000) for n in range(8)]


async def test_a_guard_that_nobody_chose_is_no_shorter_than_a_way_to_the_server(store):
    await store.set_limits([Limit("mail", Rate(100, per="100ms"))])
    await store.insert(jobs(1))

    (job,) = (await store.claim(ask())).jobs

    assert (store.least_guard, job.guard) == (10_000, 10_000)
    assert await store.limits() == [Limit("mail", Rate(100, per="100ms"))]


async def test_a_limit_of_an_earlier_release_gets_its_guard_when_it_is_declared_again(store, sql):
    await store.set_limits([GUARDED])
    await store.insert(jobs(2))
    early = [{"kind": "rate", "max": 100, "per": 1_000_000, "guard": 0}]
    sql.execute("update paceline.lim set kind = %s", (json.dumps(early),))
    (first,) = (await store.claim(ask())).jobs

    assert await store.set_limits([GUARDED]) == []

    (second,) = (await store.claim(ask())).jobs
    assert (first.guard, second.guard) == (NEVER, 20_000)


async def test_keys_that_an_earlier_schema_made_have_their_guards(store, sql):
    kind = [
        {"kind": "concurrency", "max": 5},
        {"kind": "rate", "max": 9, "per": 1_000_000, "guard": 30_000},
        {"kind": "rate", "max": 99, "per": 9_000_000, "guard": 0},
    ]
    parts = [2, 5, 0, 0, 0, 0, 0, 0, 1, 9, 1_030_000, 3, 0, 0, 7, 0, 1, 99, 9_000_000, 3, 0, 0, 7, 0]
    sql.execute(
        "insert into paceline.meter (id, lim, grp, kind, parts, slots) values (1, 0, '', %s, %s, 5)",
        (json.dumps(kind), parts),
    )

    sql.execute(step_text("0004_gate", "paceline"))

    found = sql.execute("select guard, parts from paceline.meter").fetchone()
    parts[15] = 30_000
    assert found == (30_000, parts)


# at the same time


async def test_open_starts_of_two_workers_are_counted_once_each(store, stranger, url):
    await store.set_limits([Limit("mail", Rate(4, per="1h", guard="1s"))])
    await store.insert(jobs(8))
    other = stranger(url)
    mine, theirs = (await store.claim(ask(2))).jobs, (await other.claim(ask(2))).jobs

    for one, held in ((store, mine), (other, theirs)):
        leases = [Lease(job.id, job.fence) for job in held]
        assert (await one.decide_again(leases)).refused == []
        await one.begun([Begun(each.id, each.fence) for each in leases])

    found = await store.usage("mail", None)
    assert (found.used, found.open, (await store.claim(ask(2))).jobs) == (4, 0, [])
