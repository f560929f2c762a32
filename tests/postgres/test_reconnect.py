"""The server goes away and comes back: everything goes on by itself, within five seconds."""

from __future__ import annotations

import asyncio
import logging
import time

import psycopg
import pytest

from paceline import Job, Queue, Worker
from paceline.errors import StoreUnavailable
from paceline.job import NewJob
from paceline.limits import Concurrency, Limit
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres.listening import LOOK_SOON

WITHIN = 5.0
SETTLED = LOOK_SOON * 5
"""Seconds after which who began to sleep looks no more by itself: only a notification, or the insurance, wakes it."""


def ask(claim_id: str = "") -> Ask:
    return Ask(queues=("line",), slots=5, worker="worker", lease=60_000_000, claim_id=claim_id)


async def until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_worker_consumes_again_after_a_restart(own_server, stranger, mode):
    store = open_store(own_server.url())
    queue = Queue("line", store=store)
    done: list[str] = []

    async def handle(job: Job[None]) -> None:
        done.append(job.id)

    async with Worker("line", handle, store=store):
        await queue.add("work", job_id="before")
        assert await until(lambda: done == ["before"], 10)
        await asyncio.to_thread(own_server.stop, mode)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_server.start)

        back = time.monotonic()
        other = stranger(own_server.url())
        await other.insert([NewJob("after", "line", "work")])
        assert await until(lambda: "after" in done, WITHIN), time.monotonic() - back

        await asyncio.sleep(SETTLED)
        await other.insert([NewJob("later", "line", "work")])
        assert await until(lambda: "later" in done, WITHIN), "the worker was not notified"
    await store.close()


async def test_terminated_backends_are_replaced(store, sql):
    await store.insert([NewJob("a", "line", "work")])

    sql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'paceline%'")

    assert [job.id for job in (await store.claim(ask("c1"))).jobs] == ["a"]


async def test_a_claim_whose_answer_was_lost_is_given_again(store):
    await store.insert([NewJob("a", "line", "work"), NewJob("b", "line", "work")])
    first = await store.claim(ask("c1"))

    again = await store.claim(ask("c1"))

    assert [(job.id, job.fence) for job in again.jobs] == [(job.id, job.fence) for job in first.jobs]
    assert len(await store.starts("line", None)) == 2


async def test_a_worker_is_notified_again_after_its_connection_was_cut(store, stranger, sql):
    def listening() -> set[int]:
        found = sql.execute("select pid from pg_stat_activity where application_name = 'paceline ears'")
        return {pid for (pid,) in found}

    listener = store.listen(["line"])
    assert await until(listening, WITHIN)
    before = listening()
    sql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'paceline ears'")
    assert await until(lambda: listening() - before, WITHIN)
    await asyncio.sleep(SETTLED)
    listener.event.clear()

    await stranger(store.connections.url).insert([NewJob("a", "line", "work")])

    await asyncio.wait_for(listener.event.wait(), WITHIN)
    listener.close()


# transactions that are in each other's way


async def test_claims_of_two_queues_that_meet_new_groups_in_another_order_go_on_by_themselves(store, sql):
    await store.set_limits([Limit("tenant", Concurrency(100), by="group")])

    async def work_off(queue: str, worker: str, groups: list[str]) -> int:
        await store.insert([NewJob(f"{queue}-{group}", queue, "work", group=group) for group in groups])
        started = 0
        while started < len(groups):
            # Two at a time: the keys of the later ones are made while those of the earlier ones are held.
            order = Ask(queues=(queue,), slots=2, worker=worker, lease=60_000_000)
            started += len((await store.claim(order)).jobs)
        return started

    for number in range(10):
        groups = [f"{number}-{n}" for n in range(12)]
        done = await asyncio.gather(
            work_off(f"a{number}", "w1", groups), work_off(f"b{number}", "w2", groups[::-1]), return_exceptions=True
        )
        assert done == [12, 12]
    assert (await store.usage("tenant", "0-0")).used == 2


async def test_a_claim_that_is_chosen_to_end_a_deadlock_is_asked_again(store, url):
    """Queue rows locked by hand in the other order: whoever is ended, the claim comes through."""
    await store.insert([NewJob("1", "one", "work"), NewJob("2", "two", "work")])
    ids = [await store.queue_id(name) for name in ("one", "two")]
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("set deadlock_timeout = '60s'")  # so that the claim is the one that looks
        await other.execute("select from paceline.queue where id = %s for update", [max(ids)])
        both = Ask(queues=("one", "two"), slots=2, worker="w", lease=60_000_000, claim_id="c")
        claiming = asyncio.create_task(store.claim(both))
        await asyncio.sleep(0.3)
        await other.execute("select from paceline.queue where id = %s for update", [min(ids)])
        await other.rollback()

        assert sorted(job.id for job in (await claiming).jobs) == ["1", "2"]


async def test_who_waits_for_a_result_waits_through_a_restart(own_server, stranger):
    store = open_store(own_server.url())
    await store.insert([NewJob("a", "line", "work")])
    (job,) = (await store.claim(ask())).jobs
    waits = asyncio.create_task(store.finished("a", 30_000_000))
    await asyncio.sleep(0.2)

    await asyncio.to_thread(own_server.stop, "fast")
    await asyncio.sleep(1.2)  # longer than it takes to look again
    assert not waits.done()
    await asyncio.to_thread(own_server.start)
    other = stranger(own_server.url())
    await other.finish([Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED, result=b"42")])

    found = await asyncio.wait_for(waits, WITHIN)
    assert found is not None
    assert found.result == b"42"
    await store.close()


async def test_who_waits_for_a_result_of_a_server_that_stays_away_is_told_when_the_time_is_over(own_server):
    store = open_store(own_server.url())
    await store.insert([NewJob("a", "line", "work")])
    waits = asyncio.create_task(store.finished("a", 1_000_000))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(own_server.stop, "fast")

    assert await asyncio.wait_for(waits, WITHIN) is None
    with pytest.raises(StoreUnavailable):
        await store.finished("a", 1_000_000)
    await store.close()


async def test_an_outage_is_logged_once_and_its_end_too(own_server, caplog):
    caplog.set_level(logging.INFO, logger="paceline.postgres")
    store = open_store(own_server.url())
    await store.open()
    listener = store.listen(["line"])
    await asyncio.sleep(0.3)
    await asyncio.to_thread(own_server.stop, "fast")
    await asyncio.sleep(1.5)
    await asyncio.to_thread(own_server.start)

    assert await until(lambda: "is back" in caplog.text, WITHIN)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "paceline.postgres"]
    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert f"lost the notification connection to {store.address}" in lines[0][1]
    listener.close()
    await store.close()


async def test_a_worker_is_notified_after_somebody_closed_the_store_that_it_shares(store, stranger, url):
    done: list[str] = []

    async def handle(job: Job[None]) -> None:
        done.append(job.id)

    async with Worker("line", handle, store=store):
        await asyncio.sleep(0.3)
        await store.close()
        await asyncio.sleep(0.3)
        await stranger(url).insert([NewJob("after", "line", "work")])
        assert await until(lambda: done == ["after"], WITHIN)
