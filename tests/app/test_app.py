"""An app: it never touches the store before the first awaited call, shares it by URL, and closes for good."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from paceline import App, Concurrency, ConfigError, Job, Limiter, Queue, QueueClosed, Rate, Store, Worker, open_store
from paceline.stores.memory.store import MemoryStore
from paceline.testing import VirtualTime, virtual_time

TOUCHES = {name for name, member in vars(Store).items() if inspect.iscoroutinefunction(member)}


class SpyStore(MemoryStore):
    """A memory store that writes down what is asked of it."""

    calls: list[str]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._noting(name, found) if name in TOUCHES else found

    def _noting(self, name: str, call: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            return call(*args, **options)

        return noted


class SlowStore(MemoryStore):
    """A store whose declarations take a round trip, as they do on a server."""

    written = False

    async def set_limits(self, declared: Any) -> Any:
        await asyncio.sleep(0)
        changed = await super().set_limits(declared)
        self.written = True
        return changed

    async def insert(self, jobs: Any, within: object = None) -> Any:
        assert self.written, "a job was added before the limits it meets were known"
        return await super().insert(jobs, within)


async def noop(job: Any) -> None:
    pass


def own_url() -> str:
    return f"memory://{uuid4().hex}"


# constructors


async def test_constructors_never_touch_the_store() -> None:
    store = SpyStore()
    app = App(store)
    app.limit("email", Rate(1, per="1s"), tasks=["send"])
    app.task(name="send")(noop)
    app.queue("mail", limits=[Concurrency(2)])
    app.limiter("openai", Rate(1, per="1s"))
    app.worker()
    Queue("mail", store=store, limits=[Concurrency(2)])
    Worker("mail", noop, store=store)
    Limiter("anthropic", Rate(1, per="1s"), store=store)
    assert store.calls == []


async def test_the_first_awaited_call_opens_the_store_and_writes_limits_before_it_takes_effect() -> None:
    store = SpyStore()
    app = App(store)
    app.limit("email", Rate(1, per="1s"), tasks=["send"])
    send = app.task(name="send")(noop)
    await send.enqueue({})
    assert [call for call in store.calls if call in ("open", "set_limits", "insert")] == [
        "open",
        "set_limits",
        "insert",
    ]


async def test_limits_declared_after_the_first_call_are_written_before_the_next_one() -> None:
    store = SpyStore()
    app = App(store)
    send = app.task(name="send")(noop)
    await send.enqueue({})
    app.limit("email", Rate(1, per="1s"), tasks=["send"])
    store.calls.clear()
    await send.enqueue({})
    assert [call for call in store.calls if call != "open"] == ["set_limits", "insert"]


async def test_two_first_calls_at_once_both_wait_for_the_limits_to_be_written() -> None:
    app = App(SlowStore())
    app.limit("email", Rate(1, per="1s"), tasks=["send"])
    send = app.task(name="send")(noop)
    await asyncio.gather(send.enqueue({}), send.enqueue({}))


async def test_a_declaration_the_store_refuses_is_an_error_of_every_call_and_nothing_is_added() -> None:
    store = open_store("memory://")
    first = App(store)
    first.limit("email", Rate(1, per="1s"), tasks=["send"])
    await first.limit_state("email")
    second = App(store)
    second.limit("email", Rate(1, per="1s"), queues=["mail"])
    send = second.task(name="send")(noop)
    for _ in range(2):
        with pytest.raises(ConfigError, match="email"):
            await send.enqueue({})
    assert sum((await first.queue("default").counts()).values()) == 0


# stores and URLs


async def test_one_url_string_names_one_store_for_everybody_in_the_process() -> None:
    url = own_url()
    app = App(url)
    job = await app.queue("mail").add("send")
    assert await Queue("mail", store=url).get(job.id) == job
    assert await App(url).get(job.id) == job
    app.limit("openai", Rate(1, per="1h"))
    assert await Limiter("openai", Rate(1, per="1h"), store=url).try_acquire() is not None
    assert (await app.limit_state("openai")).used == 1
    worked: list[str] = []

    async def handler(job: Job[Any]) -> None:
        worked.append(job.id)

    await app.drop_limit("openai")
    await Worker("mail", handler, store=url).run(until_empty=True)
    assert worked == [job.id]


async def test_another_memory_name_is_another_store() -> None:
    url = own_url()
    job = await App(url).queue("mail").add("send")
    assert await App(url + "-second").get(job.id) is None


async def test_open_store_always_opens_a_new_one() -> None:
    url = own_url()
    shared = App(url).store
    one, two = open_store(url), open_store(url)
    assert len({id(shared), id(one), id(two)}) == 3
    job = await Queue("mail", store=one).add("send")
    assert await Queue("mail", store=two).get(job.id) is None
    assert await Queue("mail", store=one).get(job.id) is not None


async def test_closing_one_of_those_who_share_a_url_does_not_part_the_others() -> None:
    url = own_url()
    stays = Queue("mail", store=url)
    before = await stays.add("send")
    async with App(url):
        pass
    after = await stays.add("send")
    newcomer = Queue("mail", store=url)
    assert [job.id for job in await newcomer.list()] == [before.id, after.id]


def test_the_default_is_the_memory_store_in_the_default_namespace() -> None:
    assert App().store is App("memory://", namespace="default").store
    assert App().store.namespace == "default"


async def test_namespaces_keep_applications_apart_on_one_url() -> None:
    url = own_url()
    blue, green = App(url, namespace="blue"), App(url, namespace="green")
    blue.limit("email", Rate(1, per="1s"), tasks=["send"])
    green.limit("email", Concurrency(3), queues=["mail"])
    job = await blue.queue("mail").add("send")
    assert await green.get(job.id) is None
    assert (await green.queue("mail").counts())["waiting"] == 0
    assert (await blue.limit_state("email")).kind == Rate(1, per="1s")
    assert (await green.limit_state("email")).kind == Concurrency(3)


@pytest.mark.parametrize("url", ["mysql://localhost/jobs", "", "jobs.db", 5, None], ids=repr)
def test_a_url_that_names_no_store_is_an_error_that_shows_it(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert repr(url) in str(caught.value) and "memory://" in str(caught.value)


@pytest.mark.parametrize("make", [App, lambda it: Queue("q", store=it), lambda it: Limiter("l", Rate(1, 1), store=it)])
def test_what_is_neither_a_store_nor_a_url_is_an_error_that_shows_it(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"store=\[1\]"):
        make([1])


# getting jobs


async def test_get_finds_a_job_in_whatever_queue_and_none_when_there_is_none(app: App) -> None:
    jobs = [await app.queue(name).add("send") for name in ("mail", "letters")]
    assert [await app.get(job.id) for job in jobs] == jobs
    assert await app.get("nobody") is None


# life


async def test_async_with_gives_the_app_and_closes_it(paceline_time: VirtualTime) -> None:
    app = App(paceline_time.store)
    send = app.task(name="send")(noop)
    async with app as entered:
        assert entered is app
        await send.enqueue({})
    with pytest.raises(QueueClosed):
        await send.enqueue({})


async def test_async_with_writes_the_declared_limits_at_once() -> None:
    store = SpyStore()
    app = App(store)
    app.limit("email", Rate(1, per="1s"))
    async with app:
        assert store.calls == ["open", "set_limits"]


async def test_a_closed_app_takes_no_job_by_any_way_and_stores_nothing() -> None:
    store = SpyStore()
    app = App(store)
    send = app.task(name="send")(noop)
    queue = app.queue("default")
    await send.enqueue({})
    await app.close()
    store.calls.clear()
    for add in (
        lambda: send.enqueue({}),
        lambda: send.enqueue_many([{"job": 1}]),
        lambda: send.using(delay="1m").enqueue({}),
        lambda: queue.add("send", {}),
        lambda: queue.add_many([("send", {})]),
    ):
        with pytest.raises(QueueClosed):
            await add()
    with pytest.raises(QueueClosed):
        send.enqueue_sync({})
    assert "insert" not in store.calls


async def test_closing_twice_is_closing_once(app: App) -> None:
    await app.close()
    await app.close()


async def test_the_lifespan_is_around_the_whole_life_of_the_worker(paceline_time: VirtualTime) -> None:
    events: list[Any] = []

    @asynccontextmanager
    async def lifespan(given: App) -> AsyncIterator[None]:
        events.append(given)
        yield
        events.append("down")

    app = App(paceline_time.store, lifespan=lifespan)

    @app.task()
    async def step() -> None:
        events.append("job")

    await step.enqueue()
    assert events == []
    await app.worker().run(until_empty=True)
    assert events == [app, "job", "down"]


async def test_several_workers_have_one_lifespan_together(paceline_time: VirtualTime) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        events.append("up")
        yield
        events.append("down")

    async with App(paceline_time.store, lifespan=lifespan).worker(workers=3):
        await paceline_time.advance("1s")
        assert events == ["up"]
    assert events == ["up", "down"]


async def test_a_lifespan_that_fails_is_an_error_of_run_and_starts_nothing(paceline_time: VirtualTime) -> None:
    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    app = App(paceline_time.store, lifespan=lifespan)
    await app.task(name="step")(noop).enqueue({})
    with pytest.raises(RuntimeError, match="no database"):
        await app.worker().run(until_empty=True)
    assert paceline_time.starts() == []


# workers


def test_a_worker_of_an_app_has_ten_slots_and_serves_the_queues_of_its_tasks(app: App) -> None:
    app.task(name="a", queue="mail")(noop)
    app.task(name="b", queue="letters")(noop)
    worker = app.worker()
    assert worker.concurrency == 10
    assert set(worker.queues) == {"mail", "letters"}
    assert app.worker(queues=["mail"], concurrency=3).queues == ("mail",)


def test_an_app_without_tasks_serves_the_default_queue(app: App) -> None:
    assert app.worker().queues == ("default",)


async def test_workers_3_has_three_times_the_slots_d14(app: App, paceline_time: VirtualTime) -> None:
    running = highest = 0

    @app.task()
    async def step() -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await paceline_time.sleep("1s")
        running -= 1

    await step.enqueue_many([()] * 20)
    async with app.worker(concurrency=2, workers=3):
        await paceline_time.advance("10s")
    assert highest == 6
    assert (await app.queue().counts())["completed"] == 20


async def test_several_workers_that_run_until_empty_all_return_when_the_last_job_ended(
    app: App, paceline_time: VirtualTime
) -> None:
    @app.task()
    async def step() -> None:
        await paceline_time.sleep("1s")

    await step.enqueue()
    run = asyncio.create_task(app.worker(workers=3).run(until_empty=True))
    await paceline_time.advance("1s")
    returned = run.done()
    await paceline_time.advance("1h")  # so that a late one leaves nothing behind
    await run
    assert returned


async def test_virtual_time_is_a_store_of_its_own_each_time() -> None:
    async with virtual_time("memory://") as one, virtual_time("memory://") as two:
        job = await App(one.store).queue("mail").add("send")
        assert await App(two.store).get(job.id) is None
        await one.advance("1m")
        assert (one.now() - two.now()).total_seconds() == 60
