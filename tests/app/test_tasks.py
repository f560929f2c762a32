"""Tasks: names, options, and the ways to call and to enqueue them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from paceline import App, ConfigError, Exponential, Job, NeverFits, Queue, Rate, Task, Unique, current_job
from paceline.testing import VirtualTime


def plain(n: int) -> int:
    """Doubles."""
    return 2 * n


async def coroutine(n: int) -> int:
    return 2 * n


# names and options


def test_a_task_is_named_after_its_function(app: App) -> None:
    task = app.task()(plain)
    assert isinstance(task, Task)
    assert (task.name, task.__name__, task.__doc__) == ("plain", "plain", "Doubles.")
    assert app.tasks["plain"] is task


def test_the_decorator_works_with_and_without_parentheses(app: App) -> None:
    @app.task
    def bare() -> None: ...

    @app.task()
    def called() -> None: ...

    assert set(app.tasks) == {"bare", "called"}


def test_name_gives_another_name(app: App) -> None:
    assert app.task(name="mail.send")(plain).name == "mail.send"


def test_two_tasks_of_one_name_are_an_error_and_the_first_one_stays(app: App) -> None:
    first = app.task()(plain)
    with pytest.raises(ConfigError, match="'plain'"):
        app.task(name="plain")(coroutine)
    with pytest.raises(ConfigError, match="'plain'"):
        app.task()(plain)
    assert app.tasks == {"plain": first}


def test_two_apps_may_have_tasks_of_one_name(app: App, paceline_time: VirtualTime) -> None:
    app.task()(plain)
    App(paceline_time.store).task()(plain)


async def test_the_defaults_of_a_task_are_those_of_the_contract(app: App) -> None:
    job = await app.task()(plain).enqueue(1)
    record = job.record
    assert (job.queue, job.priority, job.cost, job.attempts, job.group) == ("default", 0, 1, 1, None)
    assert (record.timeout, record.backoff, record.unique) == (None, None, None)
    assert app.tasks["plain"].isolation == "thread"


async def test_every_option_of_the_decorator_reaches_the_job(app: App) -> None:
    task = app.task(
        name="t",
        queue="mail",
        attempts=3,
        retry_delay="10s",
        timeout="1m",
        priority=-2,
        cost=4,
        unique=Unique(key="one"),
        isolation="thread",
    )(plain)
    job = await task.enqueue(1)
    record = job.record
    assert (job.task, job.queue, job.attempts, job.priority, job.cost) == ("t", "mail", 3, -2, 4)
    assert record.timeout == 60_000_000
    assert record.backoff is not None and record.backoff.delays == (10_000_000,)
    assert await task.enqueue(2) == job


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"retry_delay": "soon"},
        {"timeout": 0},
        {"priority": 0.5},
        {"cost": -1},
        {"unique": "key"},
        {"isolation": "container"},
        {"queue": ""},
        {"name": "a\nb"},
        {"colour": "red"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_wrong_option_is_an_error_where_it_is_written(app: App, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigError) as caught:
        app.task(**options)(plain)
    assert name in str(caught.value)
    assert app.tasks == {}


def test_an_empty_name_is_an_error_and_not_a_default(app: App) -> None:
    with pytest.raises(ConfigError, match="name=''"):
        app.task(name="")(plain)


def test_what_is_not_a_function_is_an_error(app: App) -> None:
    with pytest.raises(ConfigError, match="'send'"):
        app.task("send")  # type: ignore[call-overload]


# calling


async def test_calling_a_task_runs_the_function_here_and_now(app: App, paceline_time: VirtualTime) -> None:
    assert app.task()(plain)(3) == 6
    assert await app.task()(coroutine)(n=4) == 8
    assert paceline_time.starts() == []
    assert sum((await app.queue().counts()).values()) == 0


# enqueueing


async def test_enqueue_gives_a_waiting_job_of_the_task(app: App) -> None:
    job = await app.task(queue="mail")(plain).enqueue(3)
    assert isinstance(job, Job)
    assert (job.task, job.queue, job.state, job.attempts_made) == ("plain", "mail", "waiting", 0)
    assert await Queue("mail", store=app.store).get(job.id) == job


@pytest.mark.parametrize("function", [plain, coroutine], ids=["plain", "async"])
async def test_plain_and_async_functions_run_and_give_their_result(app: App, function: Any) -> None:
    job = await app.task()(function).enqueue(21)
    await app.worker().run(until_empty=True)
    assert await job.result() == 42
    assert (job.state, job.result_value, job.attempts_made) == ("completed", 42, 1)


async def test_positional_and_named_arguments_both_arrive(app: App) -> None:
    seen: list[Any] = []

    @app.task()
    async def record(first: int, *rest: int, last: str = "x", **more: Any) -> None:
        seen.append((first, rest, last, more))

    await record.enqueue(1, 2, 3, last="y", extra=[4])
    await record.enqueue(first=1)
    await app.worker().run(until_empty=True)
    assert seen == [(1, (2, 3), "y", {"extra": [4]}), (1, (), "x", {})]


async def test_arguments_that_do_not_fit_the_signature_are_an_error_at_enqueue(app: App) -> None:
    task: Any = app.task()(plain)
    calls = (
        lambda: task.enqueue(),
        lambda: task.enqueue(1, 2),
        lambda: task.enqueue(m=1),
        lambda: task.enqueue_many([(1,), (1, 2)]),
    )
    for call in calls:
        with pytest.raises(TypeError):
            await call()
    with pytest.raises(TypeError):
        task.enqueue_sync()
    assert sum((await app.queue().counts()).values()) == 0


async def test_enqueue_many_takes_tuples_mappings_and_single_values_in_order(app: App) -> None:
    done: list[tuple[int, int]] = []

    @app.task()
    async def pair(a: int, b: int = 0) -> None:
        done.append((a, b))

    jobs = await pair.enqueue_many([(1, 2), {"a": 3, "b": 4}, 5])
    assert [job.task for job in jobs] == ["pair"] * 3
    assert [job.id for job in await app.queue().list()] == [job.id for job in jobs]
    await app.worker(concurrency=1).run(until_empty=True)
    assert done == [(1, 2), (3, 4), (5, 0)]
    assert await pair.enqueue_many([]) == []


async def test_enqueue_many_is_all_or_nothing(app: App) -> None:
    app.limit("narrow", Rate(5, per="1m"), tasks=["heavy"])
    heavy = app.task(name="heavy", cost={"narrow": 6})(plain)
    with pytest.raises(NeverFits):
        await heavy.enqueue_many([(1,), (2,)])
    assert sum((await app.queue().counts()).values()) == 0


async def test_using_gives_the_same_task_with_other_options(app: App, paceline_time: VirtualTime) -> None:
    task = app.task(attempts=3, priority=1)(plain)
    other = task.using(group="tenant-7", delay="5m", priority=-1)
    job = await other.enqueue(1)
    assert (job.group, job.priority, job.attempts, job.state) == ("tenant-7", -1, 3, "delayed")
    assert (job.due_at - paceline_time.now()).total_seconds() == 300
    again = await task.enqueue(1)
    assert (again.group, again.priority, again.state) == (None, 1, "waiting")
    assert other(5) == 10
    assert (await other.using(group="tenant-8").enqueue(1)).group == "tenant-8"


async def test_using_takes_every_job_option(app: App, paceline_time: VirtualTime) -> None:
    task = app.task()(plain)
    job = await task.using(
        group="g",
        at=paceline_time.now(),
        priority=2,
        lifo=True,
        attempts=4,
        retry_delay=Exponential("1s"),
        timeout="5s",
        cost=2,
        job_id="mine",
        unique=Unique(key="k", ttl="1h"),
        keep=None,
    ).enqueue(1)
    record = job.record
    assert (job.id, job.group, job.priority, job.attempts, job.cost) == ("mine", "g", 2, 4, 2)
    assert (record.timeout, record.keep, record.unique) == (5_000_000, None, "k")
    assert record.order < 0


def test_using_with_a_wrong_option_is_an_error_at_once(app: App) -> None:
    task = app.task()(plain)
    with pytest.raises(ConfigError, match="colour"):
        task.using(colour="red")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="attempts=0"):
        task.using(attempts=0)


async def test_enqueue_sync_works_in_a_thread_without_a_loop(app: App) -> None:
    task = app.task()(plain)
    job = await asyncio.to_thread(task.enqueue_sync, 21)
    assert (await app.get(job.id)) == job
    await app.worker().run(until_empty=True)
    assert await job.result() == 42


def test_enqueue_sync_works_where_no_loop_ever_ran() -> None:
    app = App("memory://enqueue-sync")
    job = app.task()(plain).enqueue_sync(n=1)
    assert (job.state, job.task) == ("waiting", "plain")


async def test_enqueue_sync_inside_a_running_loop_does_not_deadlock(app: App) -> None:
    job = app.task()(plain).enqueue_sync(1)
    assert await app.get(job.id) == job


async def test_enqueue_sync_inside_a_loop_is_an_error_where_the_store_would_block_it(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.store, "never_blocks", False)
    with pytest.raises(ConfigError, match=r"await enqueue\(\)"):
        app.task()(plain).enqueue_sync(1)
    assert sum((await app.queue().counts()).values()) == 0


async def test_using_has_the_sync_and_the_many_form_too(app: App) -> None:
    task = app.task()(plain).using(group="g")
    jobs = [task.enqueue_sync(1), *await task.enqueue_many([(2,), (3,)])]
    assert [job.group for job in jobs] == ["g"] * 3


# inside a handler


async def test_current_job_is_the_job_whose_handler_runs_here(app: App) -> None:
    @app.task()
    async def outer() -> str:
        await asyncio.sleep(0)
        return current_job().id

    @app.task()
    def inner() -> list[str]:
        return [current_job().id, threading.current_thread().name]

    one, two = await outer.enqueue(), await inner.enqueue()
    await app.worker().run(until_empty=True)
    assert await one.result() == one.id
    name, thread = await two.result()
    assert name == two.id and thread != threading.current_thread().name


def test_current_job_outside_of_a_handler_is_an_error() -> None:
    with pytest.raises(LookupError, match="handler"):
        current_job()


async def test_a_task_enqueues_another_one(app: App) -> None:
    done: list[int] = []

    @app.task()
    async def child(n: int) -> None:
        done.append(n)

    @app.task()
    async def parent() -> None:
        await child.enqueue(1)
        child.enqueue_sync(2)

    await parent.enqueue()
    await app.worker(concurrency=1).run(until_empty=True)
    assert done == [1, 2]


async def test_a_task_that_is_added_while_the_worker_runs_is_known_at_once(
    app: App, paceline_time: VirtualTime
) -> None:
    async with app.worker():
        await paceline_time.advance("1s")
        job = await app.task(name="late")(plain).enqueue(4)
        await paceline_time.advance("1s")
    assert await job.result() == 8


async def test_a_job_whose_task_nobody_knows_stays_waiting_and_is_not_lost(
    app: App, paceline_time: VirtualTime
) -> None:
    known = app.task()(plain)
    stranger = await app.queue().add("stranger", {"args": [4], "kwargs": {}})
    job = await known.enqueue(1)
    async with app.worker():
        await paceline_time.advance("1m")
        assert (await job.refresh()).state == "completed"
        assert (await stranger.refresh()).state == "waiting"
        explanation = await stranger.explain()
    assert "'stranger'" in explanation.text and "no worker" in explanation.text
