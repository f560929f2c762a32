"""The server goes away and comes back: everything goes on by itself, within five seconds."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from paceline import Job, Queue, Worker
from paceline.job import NewJob
from paceline.limits import Concurrency, Limit
from paceline.stores import open_store
from paceline.stores.interface import Ask

WITHIN = 5.0


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
async def test_a_worker_consumes_again_after_a_restart(own_server, mode):
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
        other = open_store(own_server.url())
        await other.insert([NewJob("after", "line", "work")])

        assert await until(lambda: "after" in done, WITHIN), time.monotonic() - back
        await other.close()
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


async def test_a_worker_hears_again_after_its_ear_was_cut(store, sql):
    listener = store.listen(["line"])
    await asyncio.sleep(0.5)
    sql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'paceline ears'")
    await asyncio.sleep(3)
    listener.event.clear()

    other = open_store(store.connections.url)
    await other.insert([NewJob("a", "line", "work")])

    await asyncio.wait_for(listener.event.wait(), WITHIN)
    await other.close()
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
