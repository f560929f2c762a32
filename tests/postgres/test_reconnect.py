"""The server goes away and comes back: everything goes on by itself, within five seconds."""

from __future__ import annotations

import asyncio
import time

import pytest

from paceline import Job, Queue, Worker
from paceline.job import NewJob
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
