"""The gate: handlers begin on time, or after the store decided again; every store, every way to run a handler."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from paceline import App, Queue, Rate, Worker
from paceline.errors import StoreUnavailable
from paceline.lifecycle import run
from paceline.stores.interface import Hold

from .gated import begin_in_process

PER = 300_000
LIMIT = Rate(5, per="300ms")


def now() -> int:
    return time.time_ns() // 1000


def worst_window(begins: list[int], per: int = PER) -> int:
    """The most that began in any window: one begins at each of them."""
    return max((sum(1 for other in begins if at <= other < at + per) for at in begins), default=0)


@pytest.fixture
def slow_claims(real_store, monkeypatch):
    """Answers that come later than any guard allows."""
    claim = real_store.claim

    async def slow(*args):
        answer = await claim(*args)
        await asyncio.sleep(0.04 if answer.jobs else 0)
        return answer

    monkeypatch.setattr(real_store, "claim", slow)


class Begins:
    """Handlers that note when they begin."""

    def __init__(self, path) -> None:
        self.at: list[int] = []
        self.path = path
        self.options: dict[str, Any] = {}

    async def in_loop(self, job) -> None:
        self.at.append(now())

    async def blocking(self, job) -> None:
        self.at.append(now())
        time.sleep(0.015)

    def in_thread(self, job) -> None:
        self.at.append(now())

    async def in_batch(self, jobs) -> None:
        self.at += [now()] * len(jobs)

    def all(self) -> list[int]:
        lines = self.path.read_text().split() if self.path.exists() else []
        return sorted([*self.at, *map(int, lines)])


WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "loop": (lambda begins: begins.in_loop, {"concurrency": 10}),
    "blocking": (lambda begins: begins.blocking, {"concurrency": 10}),
    "threads": (lambda begins: begins.in_thread, {"concurrency": 10}),
    "batches": (lambda begins: begins.in_batch, {"concurrency": 2, "batch": 4}),
    "processes": (lambda begins: begin_in_process, {"concurrency": 3, "isolation": "process"}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_late_handlers_break_no_window_and_all_begin(real_store, slow_claims, tmp_path, way):
    begins = Begins(tmp_path / "begins")
    queue = Queue("line", store=real_store, limits=[LIMIT])
    await queue.add_many([("work", {"file": str(begins.path)})] * 18)
    handler, options = WAYS[way]

    worker = Worker("line", handler(begins), store=real_store, **options)
    await asyncio.wait_for(worker.run(until_empty=True), 30)

    began = begins.all()
    assert len(began) == 18
    assert worst_window(began) <= 5
    usage = await real_store.usage("queue:line", None)
    assert usage.open == 0
    # Where each start counts is not before its handler began.
    stamps = sorted(start.at for start in await real_store.starts("line", None))
    assert len(stamps) == 18
    assert all(stamp >= at - 25_000 for stamp, at in zip(stamps, began, strict=True))


async def test_handlers_that_are_on_time_say_nothing(real_store, monkeypatch):
    said: list[Any] = []
    for name in ("decide_again", "begun"):
        monkeypatch.setattr(real_store, name, lambda leases, name=name: said.append(name))
    queue = Queue("line", store=real_store, limits=[Rate(100, per="60s", guard="30s")])
    await queue.add_many([("work", None)] * 20)

    async def nothing(job) -> None: ...

    await asyncio.wait_for(Worker("line", nothing, store=real_store, concurrency=5).run(until_empty=True), 30)

    assert said == []
    assert len(await real_store.starts("line", None)) == 20


async def test_what_is_held_meanwhile_does_not_begin(real_store, monkeypatch):
    claim = real_store.claim
    held = asyncio.Event()

    async def held_on_the_way(*args):
        answer = await claim(*args)
        if answer.jobs and not held.is_set():
            await real_store.hold([Hold(limit="queue:line", for_=400_000)])
            held.set()
            await asyncio.sleep(0.05)
        return answer

    monkeypatch.setattr(real_store, "claim", held_on_the_way)
    queue = Queue("line", store=real_store, limits=[LIMIT])
    await queue.add_many([("work", None)] * 3)
    begins: list[int] = []
    all_began = asyncio.Event()

    async def begin(job) -> None:
        begins.append(now())
        assert job.attempts_made == 1
        if len(begins) == 3:
            all_began.set()

    worker = Worker("line", begin, store=real_store, concurrency=3)
    async with worker:
        await asyncio.wait_for(held.wait(), 10)
        since = now()
        await asyncio.wait_for(all_began.wait(), 10)

    assert min(begins) - since > 250_000
    assert len(await real_store.starts("line", None)) == 3


async def test_a_store_that_is_away_lets_nothing_begin_early(real_store, slow_claims, monkeypatch):
    decide = real_store.decide_again
    tries = 0

    async def away(leases):
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("it is away")
        return await decide(leases)

    monkeypatch.setattr(real_store, "decide_again", away)
    queue = Queue("line", store=real_store, limits=[LIMIT])
    await queue.add_many([("work", None)] * 4)
    begins: list[int] = []

    async def begin(job) -> None:
        begins.append(now())
        assert job.attempts_made == 1

    await asyncio.wait_for(Worker("line", begin, store=real_store, concurrency=4).run(until_empty=True), 30)

    assert (len(begins), tries >= 2) == (4, True)
    assert worst_window(begins) <= 5


async def test_a_handler_that_was_stopped_between_gate_and_first_line_is_reported(real_store, monkeypatch):
    since_boot = run.since_boot
    queue = Queue("line", store=real_store, limits=[Rate(5, per="60s", guard="5s")])
    job = await queue.add("work")
    # The look after the first line, by which ten seconds have passed.
    monkeypatch.setattr(run, "since_boot", lambda: since_boot() + 10_000_000)
    claimed: list[int] = []

    async def begin(job) -> None:
        claimed.append(job.record.started_at)
        await asyncio.sleep(0.05)

    await asyncio.wait_for(Worker("line", begin, store=real_store).run(until_empty=True), 30)

    (start,) = await real_store.starts("line", None)
    assert start.at > claimed[0]
    assert (await queue.get(job.id)).record.started_at == start.at


async def test_a_claim_that_was_asked_again_is_timed_from_its_first_send(real_store, monkeypatch):
    claim, decide = real_store.claim, real_store.decide_again
    asked: list[int] = []
    cut = False

    async def cut_off(ask, finishes=()):
        nonlocal cut
        answer = await claim(ask, finishes)
        if answer.jobs and not cut:
            cut = True
            raise StoreUnavailable("the answer got lost")
        return answer

    async def counting(leases):
        asked.append(len(leases))
        return await decide(leases)

    monkeypatch.setattr(real_store, "claim", cut_off)
    monkeypatch.setattr(real_store, "decide_again", counting)
    queue = Queue("line", store=real_store, limits=[Rate(50, per="60s", guard="50ms")])
    await queue.add_many([("work", None)] * 3)

    async def nothing(job) -> None: ...

    await asyncio.wait_for(Worker("line", nothing, store=real_store, concurrency=3).run(until_empty=True), 30)

    assert asked == [3]


async def test_a_long_handler_that_began_late_is_open_no_more(real_store, slow_claims):
    queue = Queue("line", store=real_store, limits=[Rate(5, per="60s", guard="5ms")])
    await queue.add("work")
    begun, over = asyncio.Event(), asyncio.Event()

    async def long(job) -> None:
        begun.set()
        await over.wait()

    async with Worker("line", long, store=real_store):
        await asyncio.wait_for(begun.wait(), 10)
        async with asyncio.timeout(10):
            while (await real_store.usage("queue:line", None)).open:  # noqa: ASYNC110  # another process could ask, too
                await asyncio.sleep(0.01)
        assert (await real_store.usage("queue:line", None)).used == 1
        over.set()


async def test_a_beginning_that_cannot_be_reported_holds_up_no_end(real_store, monkeypatch):
    async def broken(said):
        raise RuntimeError("not an error of a store")

    since_boot = run.since_boot
    monkeypatch.setattr(run, "since_boot", lambda: since_boot() + 10_000_000)
    monkeypatch.setattr(real_store, "begun", broken)
    queue = Queue("line", store=real_store, limits=[Rate(5, per="60s", guard="5s")])
    await queue.add_many([("work", None)] * 3)

    async def nothing(job) -> None: ...

    await asyncio.wait_for(Worker("line", nothing, store=real_store, concurrency=3).run(until_empty=True), 30)

    assert (await queue.counts())["completed"] == 3


async def test_late_starts_of_one_claim_are_decided_in_one_step(real_store, slow_claims, monkeypatch):
    decide, asked = real_store.decide_again, []

    async def counting(leases):
        asked.append(len(leases))
        return await decide(leases)

    monkeypatch.setattr(real_store, "decide_again", counting)
    queue = Queue("line", store=real_store, limits=[Rate(50, per="60s", guard="5ms")])
    await queue.add_many([("work", None)] * 20)

    async def nothing(job) -> None: ...

    await asyncio.wait_for(Worker("line", nothing, store=real_store, concurrency=20).run(until_empty=True), 30)

    assert asked == [20]


async def test_cancelling_a_handler_that_pauses_first_reaches_it(real_store):
    """The first step of a handler is watched: what is thrown in there and later goes to the handler."""
    seen: list[str] = []
    cancelled = asyncio.Event()

    async def stubborn(job) -> str:
        for name in ("first", "second"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append(name)
                cancelled.set()
        return "done"

    queue = Queue("line", store=real_store, limits=[Rate(5, per="60s", guard="30s")])
    job = await queue.add("work", None, timeout="100ms")
    worker = Worker("line", stubborn, store=real_store)
    async with worker:
        await asyncio.wait_for(cancelled.wait(), 10)
        await worker.stop(grace=0)
    assert seen[0] == "first"
    assert (await queue.get(job.id)) is not None


async def test_a_workers_own_limiter_counts_where_handlers_begin(real_store, slow_claims):
    queue = Queue("line", store=real_store)
    await queue.add_many([("work", None)] * 12)
    begins: list[int] = []

    async def begin(job) -> None:
        begins.append(now())
        time.sleep(0.01)

    worker = Worker("line", begin, store=real_store, concurrency=8, limiter=Rate(3, per="100ms"))
    await asyncio.wait_for(worker.run(until_empty=True), 30)

    assert len(begins) == 12
    assert worst_window(begins, 100_000) <= 3


async def test_code_that_asks_for_permits_begins_within_the_guard_or_is_decided_again(real_store, monkeypatch):
    acquire = real_store.acquire

    async def slow(*args, **how):
        grant = await acquire(*args, **how)
        await asyncio.sleep(0.03 if grant.granted else 0)
        return grant

    monkeypatch.setattr(real_store, "acquire", slow)
    app = App(real_store)
    limiter = app.limiter("api", Rate(3, per="200ms"))
    begins: list[int] = []

    async def call() -> None:
        async with limiter.acquire():
            begins.append(now())

    await asyncio.wait_for(asyncio.gather(*(call() for _ in range(10))), 30)

    assert len(begins) == 10
    assert worst_window(begins, 200_000) <= 3
    assert (await real_store.usage("api", None)).open == 0


@pytest.mark.parametrize("limits", [[], [Rate(50, per="60s", guard="5ms")]], ids=["free", "limited"])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_timeout_counts_from_where_the_handler_begins(real_store, limits, plain):
    queue = Queue("line", store=real_store, limits=limits)
    for _ in range(3):
        await queue.add("blocks")
    quick = await queue.add("quick", None, timeout="100ms")

    async def handler(job) -> Any:
        if job.task == "blocks":
            time.sleep(0.15)  # the fault under test: a handler that holds up all others
        return None

    def in_thread(job) -> None:
        if job.task == "blocks":
            time.sleep(0.01)

    worker = Worker("line", in_thread if plain else handler, store=real_store, concurrency=4)
    await asyncio.wait_for(worker.run(until_empty=True), 30)

    found = await queue.get(quick.id)
    assert found is not None
    assert (str(found.state), found.error) == ("completed", None)
