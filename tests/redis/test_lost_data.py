"""A server that forgot everything while programs live: their limits hold before anything starts again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from paceline import App, Concurrency, GroupLimits, Job, Limit, Queue, Rate, Worker
from paceline.errors import JobNotFound, StoreError
from paceline.job import NewJob
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Lease, Outcome, Store, WorkerRecord
from paceline.stores.redis import listeners

from ..servers.redis import RedisServer, free_port

TWO = Concurrency(2)


@asynccontextmanager
async def opened(url: str, **options: bool) -> AsyncIterator[Store]:
    store = open_store(url, **options)
    try:
        yield store
    finally:
        await store.close()


def restart(server: RedisServer) -> None:
    """It keeps no log: the new one knows nothing."""
    server.kill()
    server.start()


def flush(server: RedisServer) -> None:
    assert server.ask("FLUSHALL").startswith(b"+OK")


def flush_all_of_it(server: RedisServer) -> None:
    flush(server)
    assert server.ask("FUNCTION", "FLUSH").startswith(b"+OK")


@pytest.fixture(params=[restart, flush, flush_all_of_it], ids=lambda way: way.__name__)
def forget(request: pytest.FixtureRequest) -> Callable[[RedisServer], None]:
    way: Callable[[RedisServer], None] = request.param
    return way


class Watched:
    """A handler that counts how many of it run at once."""

    def __init__(self) -> None:
        self.running = self.most = self.done = 0

    async def __call__(self, job: Job[None]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.005)
        self.running -= 1
        self.done += 1

    async def until(self, number: int) -> float:
        started = time.monotonic()
        while self.done < number:
            assert time.monotonic() - started < 15, f"{self.done} of {number} are done"
            await asyncio.sleep(0.005)
        return time.monotonic() - started


async def add_many(queue: Queue, jobs: list[object]) -> None:
    """Add jobs; a server that was just ended is found at the second try."""
    for _ in range(50):
        try:
            await queue.add_many(jobs)
            return
        except StoreError:
            await asyncio.sleep(0.02)
    raise AssertionError("the server was not found again")


async def test_a_limit_of_an_app_holds_for_what_is_added_afterwards(new_server, forget):
    server, watched = new_server(), Watched()
    async with opened(server.url) as store:
        app = App(store)
        app.limit("two", TWO, queues=["line"])
        queue = app.queue("line")
        async with Worker("line", watched, store=store, concurrency=20):
            await queue.add("work")
            await watched.until(1)
            forget(server)
            await add_many(queue, [("work", None)] * 40)
            await watched.until(41)
        assert watched.most <= 2
        assert (await app.limit_state("two")).kind == TWO


async def test_a_limit_holds_when_a_program_adds_that_never_knew_it(new_server, forget):
    server, watched = new_server(), Watched()
    async with opened(server.url) as store, opened(server.url) as stranger:
        worker = Worker("line", watched, store=store, concurrency=20, group=GroupLimits(concurrency=2))
        async with worker:
            await Queue("line", store=store).add("work", group="one")
            await watched.until(1)
            worker.pause()
            forget(server)
            await add_many(Queue("line", store=stranger), [("work", None, {"group": "one"})] * 40)
            worker.resume()
            await watched.until(41)
        assert watched.most <= 2


async def test_limits_of_queues_and_limiters_are_declared_again(new_server, forget):
    server = new_server()
    async with opened(server.url) as store, opened(server.url) as other:
        queue = Queue("line", store=store, limits=[TWO])
        limiter = App(store).limiter("calls", Concurrency(1))
        await queue.counts()
        assert await limiter.can_proceed()

        forget(server)
        await add_many(queue, [("work", None)])

        kinds = {limit.name: limit.kind for limit in await other.limits()}
        assert kinds == {"queue:line": TWO, "calls": Concurrency(1)}
        permit = await limiter.try_acquire()
        assert permit is not None
        assert await limiter.try_acquire() is None
        await permit.release()


async def test_a_limiter_of_a_limit_leaves_it_the_scope_it_had(new_server, forget):
    server = new_server()
    async with opened(server.url) as store:
        app = App(store)
        app.limit("two", TWO, queues=["line"])
        await app.limiter("two", TWO).can_proceed()
        await store.set_limits([Limit.for_code("two", TWO, None)])

        forget(server)

        assert [limit.queues for limit in await store.limits()] == [frozenset({"line"})]


async def test_the_latest_declaration_holds_again_whoever_comes_back_first(new_server, forget):
    server = new_server()
    async with opened(server.url) as early, opened(server.url) as late:
        await early.set_limits([Limit("all", Rate(5, per="1m"))])
        await late.set_limits([Limit("all", Rate(7, per="1m"))])
        for order in ((early, late), (late, early)):
            forget(server)
            for store in order:
                await store.open()
                await store.counts("line")
            assert [limit.kind for limit in await early.limits()] == [Rate(7, per="1m")]


async def test_a_restart_that_lost_nothing_brings_back_no_older_numbers_and_nothing_dropped(new_server):
    server = new_server("--appendonly", "yes", "--appendfsync", "always")
    async with opened(server.url) as early, opened(server.url) as late:
        await early.set_limits([Limit("all", Rate(5, per="1m")), Limit("gone", TWO)])
        await late.set_limits([Limit("all", Rate(7, per="1m"))])
        assert await late.drop_limit("gone")
        restart(server)
        await late.counts("line")
        await early.counts("line")
        assert [(limit.name, limit.kind) for limit in await early.limits()] == [("all", Rate(7, per="1m"))]


async def test_what_a_snapshot_does_not_know_is_declared_again(new_server):
    server = new_server()
    async with opened(server.url) as store:
        await store.insert([NewJob("a", "line", "work")])
        assert server.ask("SAVE").startswith(b"+OK")
        await store.set_limits([Limit("two", TWO, queues=["line"])])
        restart(server)
        assert [job.id for job in await store.get(["a"])] == ["a"]
        assert [limit.name for limit in await store.limits()] == ["two"]


async def test_a_replica_that_never_received_anything_gets_the_limits(new_server):
    port = free_port()
    server = new_server(port=port)
    async with opened(server.url) as store:
        await store.set_limits([Limit("two", TWO, queues=["line"])])
        server.kill()
        new_server(port=port)
        await store.insert([NewJob(f"job {number}", "line", "work") for number in range(5)])
        claim = await store.claim(Ask(queues=("line",), slots=5, worker="w", lease=60_000_000))
        assert len(claim.jobs) == 2


async def test_workers_are_known_again(new_server, forget):
    server = new_server()
    async with opened(server.url) as store:
        await store.register(WorkerRecord(id="first", queues=("line",)))
        await store.register(WorkerRecord(id="second", queues=("line",), tasks=frozenset({"work"})))
        await store.unregister("first")
        forget(server)
        await store.counts("line")
        assert [(worker.id, worker.queues, worker.tasks) for worker in await store.workers()] == [
            ("second", ("line",), frozenset({"work"}))
        ]


async def test_workers_that_slept_are_woken_by_what_a_living_program_adds(new_server, forget):
    server, watched = new_server(), Watched()
    async with opened(server.url) as store, opened(server.url) as second, opened(server.url) as adder:
        queue = Queue("line", store=adder)
        async with Worker("line", watched, store=store), Worker("line", watched, store=second):
            await queue.add("work")
            await watched.until(1)
            await asyncio.sleep(0.1)
            forget(server)
            await add_many(queue, [("work", None)] * 20)
            assert await watched.until(21) < 2
            await asyncio.sleep(0.1)
            await queue.add("work")
            assert await watched.until(22) < 1


async def test_whoever_waits_for_a_job_that_is_gone_is_told(new_server, forget):
    server = new_server()
    async with opened(server.url) as store, opened(server.url) as other:
        job = await Queue("line", store=store).add("work")
        await other.open()
        waiting = asyncio.create_task(job.result(timeout=20))
        await asyncio.sleep(0.1)
        forget(server)
        await add_many(Queue("line", store=other), [("work", None)])
        started = time.monotonic()
        with pytest.raises(JobNotFound, match=job.id):
            await waiting
        assert time.monotonic() - started < 5


async def test_whoever_waits_finds_out_when_nobody_else_knew(new_server, monkeypatch):
    monkeypatch.setattr(listeners, "BLOCK", 1)
    server = new_server()
    async with opened(server.url) as store:
        job = await Queue("line", store=store).add("work")
        waiting = asyncio.create_task(job.result(timeout=20))
        await asyncio.sleep(0.1)
        flush(server)
        with pytest.raises(JobNotFound, match=job.id):
            await waiting


async def test_a_lease_of_a_life_before_proves_nothing(new_server, forget):
    server = new_server()
    job = NewJob("a", "line", "work")
    ask = Ask(queues=("line",), slots=1, worker="w", lease=60_000_000)
    async with opened(server.url) as store:
        await store.insert([job])
        (before,) = (await store.claim(ask)).jobs
        forget(server)
        async with opened(server.url) as stranger:
            await stranger.insert([job])
            (after,) = (await stranger.claim(ask)).jobs
            assert after.fence > before.fence
            assert (await store.extend("w", [Lease("a", before.fence)], 60_000_000)).lost == ["a"]
            ended = Finish(id="a", fence=before.fence, outcome=Outcome.COMPLETED)
            assert await store.finish([ended]) == ["a"]


async def test_rates_are_held_where_forgotten_starts_would_count(new_server, forget):
    server = new_server("--appendonly", "no")
    ask = Ask(queues=("line",), slots=5, worker="w", lease=60_000_000)
    async with opened(server.url) as store:
        await store.set_limits([Limit("all", Rate(2, per="1h"))])
        await store.insert([NewJob(id, "line", "work") for id in ("a", "b", "c")])
        assert len((await store.claim(ask)).jobs) == 2
        forget(server)
        await store.insert([NewJob(id, "line", "work") for id in ("d", "e")])
        assert (await store.claim(ask)).jobs == []
        usage = await store.usage("all", None)
        assert "may have lost starts" in str(usage)


async def test_who_trusts_the_server_holds_nothing(new_server, forget):
    server = new_server()
    ask = Ask(queues=("line",), slots=5, worker="w", lease=60_000_000)
    async with opened(server.url, trust_restart=True) as store:
        await store.set_limits([Limit("all", Rate(2, per="1h"))])
        await store.insert([NewJob("a", "line", "work")])
        assert len((await store.claim(ask)).jobs) == 1
        forget(server)
        await store.insert([NewJob("b", "line", "work")])
        assert len((await store.claim(ask)).jobs) == 1


async def test_one_line_says_what_happened(new_server, forget, caplog):
    server = new_server()
    async with opened(server.url) as store:
        await store.set_limits([Limit("two", TWO)])
        forget(server)
        caplog.clear()
        await store.counts("line")
        said = [record.message for record in caplog.records if "declared again" in record.message]
        assert len(said) == 1
        assert said[0].startswith(f"{server.url} lost everything it knew")
