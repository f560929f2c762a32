"""Limits by name: declared, declared again, overridden by an operator, dropped, and looked at."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from paceline import (
    AllOf,
    App,
    Backoff,
    Concurrency,
    ConfigError,
    Delay,
    EvenlySpaced,
    Limit,
    LimitState,
    Queue,
    Rate,
    Unlimited,
)
from paceline.testing import VirtualTime

from .conftest import Timeline


async def fill(app: App, time: VirtualTime, jobs: int, *, task: str = "step", **options: Any) -> None:
    """Add jobs of a task that ends at once, and let a worker start what it may."""
    if task not in app.tasks:

        async def step() -> None: ...

        app.task(name=task)(step)
    await app.tasks[task].using(**options).enqueue_many([()] * jobs)
    async with app.worker(concurrency=100):
        await time.advance(0)


# declaring


def test_app_limit_gives_the_limit_it_declared(app: App) -> None:
    limit = app.limit("email", Rate(120, per="1m") & Concurrency(5), tasks=["send"])
    assert isinstance(limit, Limit)
    assert (limit.name, limit.kind) == ("email", AllOf(Rate(120, per="1m"), Concurrency(5)))
    assert (limit.queues, limit.tasks, limit.by) == (None, frozenset({"send"}), None)
    assert limit.backoff is None and not limit.overrides


async def test_without_queues_and_tasks_a_limit_covers_every_job(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("all", Rate(1, per="1s"))

    async def step() -> None: ...

    await app.task(name="a", queue="one")(step).enqueue()
    await app.task(name="b", queue="two")(step).enqueue()
    async with app.worker():
        await paceline_time.advance("5s")
    assert timeline.starts() == [0, 1]


async def test_queues_and_tasks_together_cover_the_jobs_that_are_in_both(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("narrow", Rate(1, per="10s"), queues=["one"], tasks=["a"])

    async def step() -> None: ...

    a, b = app.task(name="a", queue="one")(step), app.task(name="b", queue="one")(step)
    for task in (a, b, a.using(queue="two")):
        await task.enqueue_many([()] * 3)
    async with app.worker(queues=["one", "two"], concurrency=20):
        await paceline_time.advance("5s")
    assert timeline.starts("b") == [0, 0, 0]
    assert len(await app.queue("two").starts()) == 3
    assert [start.task for start in await app.queue("one").starts()].count("a") == 1


async def test_the_same_meaning_declared_again_is_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    first = app.limit("email", Rate(120, per="1m"), tasks=["b", "a"])
    await app.limit_state("email")
    again = app.limit("email", Rate(120, per=60), tasks=["a", "b"])
    other_program = App(app.store)
    other_program.limit("email", Rate("120/min"), tasks=("a", "b"))
    await other_program.limit_state("email")
    assert again == first
    assert caplog.records == []


@pytest.mark.parametrize(
    "scope",
    [{}, {"tasks": ["other"]}, {"tasks": ["send", "other"]}, {"queues": ["mail"], "tasks": ["send"]}],
    ids=repr,
)
@pytest.mark.parametrize("other_program", [False, True], ids=["one program", "two programs"])
async def test_the_same_name_with_another_scope_is_an_error(
    app: App, scope: dict[str, Any], other_program: bool
) -> None:
    app.limit("email", Rate(1, per="1m"), tasks=["send"])
    await app.limit_state("email")
    declaring = App(app.store) if other_program else app
    with pytest.raises(ConfigError, match="'email'"):
        declaring.limit("email", Rate(1, per="1m"), **scope)
        await declaring.limit_state("email")
    assert (await app.limit_state("email")).kind == Rate(1, per="1m")


async def test_per_group_and_not_per_group_are_different_scopes(app: App) -> None:
    app.limit("tenant", Rate(1, per="1m"), by="group")
    with pytest.raises(ConfigError, match="'tenant'"):
        app.limit("tenant", Rate(1, per="1m"))


def test_other_numbers_twice_in_one_program_are_an_error_that_shows_both(app: App) -> None:
    app.limit("email", Rate(120, per="1m"))
    with pytest.raises(ConfigError) as caught:
        app.limit("email", Rate(60, per="1m"))
    assert "Rate(120, per='1m')" in str(caught.value) and "Rate(60, per='1m')" in str(caught.value)
    with pytest.raises(ConfigError, match="'email'"):
        app.limiter("email", Rate(60, per="1m"))
    with pytest.raises(ConfigError, match="'email'"):
        app.queue("mail", limits=[Limit("email", Rate(60, per="1m"))])


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"kind": Rate(5, per="1m")}, {"kind": Rate(2, per="1m")}, ("Rate(5, per='1m')", "Rate(2, per='1m')")),
        (
            {"kind": Rate(5, per="1m"), "by": "group", "overrides": {"a": Rate(6, per="1m")}},
            {"kind": Rate(5, per="1m"), "by": "group", "overrides": {"a": Rate(7, per="1m")}},
            ("Rate(6, per='1m')", "Rate(7, per='1m')"),
        ),
        (
            {"kind": Rate(5, per="1m"), "backoff": Backoff("2s")},
            {"kind": Rate(5, per="1m"), "backoff": Backoff("3s")},
            ("'2s'", "'3s'"),
        ),
    ],
    ids=["kind", "overrides", "backoff"],
)
async def test_other_numbers_from_another_program_win_for_everybody_and_both_are_logged(
    app: App,
    caplog: pytest.LogCaptureFixture,
    first: dict[str, Any],
    second: dict[str, Any],
    words: tuple[str, str],
) -> None:
    app.limit("email", **first)
    await app.queue().counts()
    other = App(app.store)
    other.limit("email", **second)
    await other.queue().counts()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "'email'" in warnings[0] and all(word in warnings[0] for word in words)
    assert (await app.limit_state("email", group="a" if "by" in first else None)).kind == (
        second.get("overrides") or {"a": second["kind"]}
    )["a"]


async def test_other_numbers_hold_at_once_and_no_start_is_forgotten(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(4, per="1m"))
    await fill(app, paceline_time, 20)
    assert timeline.starts() == [0] * 4
    other = App(app.store)
    other.limit("email", Rate(6, per="1m"))
    await other.queue().counts()
    async with app.worker(concurrency=100):
        await paceline_time.advance("59s")
        assert timeline.starts() == [0] * 6
        await paceline_time.advance("1s")
        assert timeline.starts() == [0] * 6 + [60] * 6


async def test_lowered_numbers_wait_until_the_window_since_then_has_room(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(4, per="1m"))
    await fill(app, paceline_time, 20)
    await paceline_time.advance("30s")
    other = App(app.store)
    other.limit("email", Rate(2, per="1m"))
    await other.queue().counts()
    async with app.worker(concurrency=100):
        await paceline_time.advance("95s")
    assert timeline.starts() == [0] * 4 + [60] * 2 + [120] * 2


async def test_names_in_tasks_need_not_exist_and_the_worker_warns_when_it_starts(
    app: App, paceline_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    app.limit("email", Rate(1, per="1m"), tasks=["step", "sned"])
    await fill(app, paceline_time, 1)
    assert [r.getMessage() for r in caplog.records if "sned" in r.getMessage() and "'email'" in r.getMessage()]


# queues and groups


async def test_a_bare_kind_of_a_queue_is_the_limit_queue_name(paceline_time: VirtualTime) -> None:
    queue = Queue("mail", store=paceline_time.store, limits=[Rate(2, per="1m")])
    await queue.counts()
    app = App(paceline_time.store)
    assert (await app.limit_state("queue:mail")).kind == Rate(2, per="1m")
    await fill(app, paceline_time, 1)
    assert (await app.limit_state("queue:mail")).used == 0


async def test_several_bare_kinds_of_a_queue_are_one_limit_of_all_of_them(paceline_time: VirtualTime) -> None:
    await Queue("mail", store=paceline_time.store, limits=[Rate(2, per="1m"), Concurrency(1)]).counts()
    state = await App(paceline_time.store).limit_state("queue:mail")
    assert state.kind == Rate(2, per="1m") & Concurrency(1)


async def test_a_queue_declares_named_limits_too(paceline_time: VirtualTime) -> None:
    await Queue("mail", store=paceline_time.store, limits=[Limit("x", Delay("1s"), tasks=["t"])]).counts()
    assert (await App(paceline_time.store).limit_state("x")).kind == Delay("1s")


async def test_by_group_has_one_counter_per_group_and_never_applies_without_a_group(
    app: App, paceline_time: VirtualTime
) -> None:
    app.limit("tenant", Rate(2, per="1m"), by="group")
    for group in ("a", "b", None):
        await fill(app, paceline_time, 5, group=group)
    started = [start.group for start in paceline_time.starts()]
    assert (started.count("a"), started.count("b"), started.count(None)) == (2, 2, 5)


async def test_overrides_give_single_groups_other_numbers(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tenant", Rate(2, per="1m"), by="group", overrides={"big": Rate(4, per="1m")})
    for group in ("small", "big"):
        await fill(app, paceline_time, 9, group=group)
    started = [start.group for start in paceline_time.starts()]
    assert (started.count("small"), started.count("big")) == (2, 4)
    assert (await app.limit_state("tenant", "big")).kind == Rate(4, per="1m")
    assert (await app.limit_state("tenant", group="small")).kind == Rate(2, per="1m")


# overrides by an operator


async def test_an_override_wins_over_every_declaration_until_it_is_lifted(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(4, per="1m"))
    await app.override("email", Rate(1, per="1m"), reason="the provider is unwell")
    other = App(app.store)
    other.limit("email", Rate(9, per="1m"))
    await other.queue().counts()
    assert (await app.limit_state("email")).kind == Rate(1, per="1m")
    await fill(app, paceline_time, 20)
    assert timeline.starts() == [0]
    await app.override("email", None)
    assert (await app.limit_state("email")).kind == Rate(9, per="1m")
    await fill(app, paceline_time, 1)
    assert timeline.starts() == [0] * 9


async def test_lifting_wakes_a_worker_that_sleeps_on_the_override(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(4, per="1m"))
    await app.override("email", Rate(1, per="1m"))
    await fill(app, paceline_time, 20)
    async with app.worker(concurrency=100):
        await paceline_time.advance("10s")
        await app.override("email", None)
        await paceline_time.advance("1ms")
    assert timeline.starts() == [0, 10, 10, 10]


@pytest.mark.parametrize("as_datetime", [False, True], ids=["a duration", "a datetime"])
async def test_an_override_ends_by_itself_when_it_expires(
    app: App, paceline_time: VirtualTime, timeline: Timeline, as_datetime: bool
) -> None:
    app.limit("email", Rate(2, per="1m"))
    expires: Any = paceline_time.now() + timedelta(seconds=5) if as_datetime else "5s"
    await app.override("email", Rate(1, per="1m"), expires=expires)
    await fill(app, paceline_time, 20)
    async with app.worker(concurrency=100):
        await paceline_time.advance("20s")
    assert timeline.starts() == [0, 5]
    assert (await app.limit_state("email")).kind == Rate(2, per="1m")


async def test_an_override_of_one_group_leaves_the_others_alone(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tenant", Rate(2, per="1m"), by="group")
    await app.override("tenant", Rate(5, per="1m"), group="big", reason="paid for it")
    for group in ("small", "big"):
        await fill(app, paceline_time, 9, group=group)
    started = [start.group for start in paceline_time.starts()]
    assert (started.count("small"), started.count("big")) == (2, 5)
    await app.override("tenant", None, group="big")
    assert (await app.limit_state("tenant", "big")).kind == Rate(2, per="1m")


async def test_an_override_that_lifts_the_limit_altogether_keeps_the_starts_for_later(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(3, per="1m"))
    await fill(app, paceline_time, 2)
    await app.override("email", Rate(100, per="1m"))
    await fill(app, paceline_time, 10)
    await app.override("email", None)
    await fill(app, paceline_time, 5)
    assert timeline.starts() == [0] * 12
    async with app.worker():
        await paceline_time.advance("61s")
    assert timeline.starts() == [0] * 12 + [60] * 3


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"kind": 5}, "kind=5"),
        ({"kind": Rate(1, per=1), "group": ""}, "group=''"),
        ({"kind": Rate(1, per=1), "group": 7}, "group=7"),
        ({"kind": Rate(1, per=1), "group": "a"}, "'a'"),
        ({"kind": Rate(1, per=1), "expires": 0}, "expires=0"),
        ({"kind": Rate(1, per=1), "expires": "soon"}, "expires='soon'"),
        ({"kind": Rate(1, per=1), "expires": datetime(2030, 1, 1)}, "expires=datetime"),
    ],
    ids=["no kind", "empty group", "group not text", "not per group", "zero", "no duration", "naive datetime"],
)
async def test_a_wrong_override_is_an_error_and_changes_nothing(app: App, options: dict[str, Any], shown: str) -> None:
    app.limit("email", Rate(4, per="1m"))
    with pytest.raises(ConfigError) as caught:
        await app.override("email", **options)
    assert shown in str(caught.value)
    assert (await app.limit_state("email")).kind == Rate(4, per="1m")


# dropping


async def test_a_dropped_limit_refuses_nobody_and_may_be_declared_anew(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(1, per="1m"), tasks=["step"])
    await fill(app, paceline_time, 3)
    assert timeline.starts() == [0]
    assert await app.drop_limit("email") is True
    await fill(app, paceline_time, 1)
    assert timeline.starts() == [0] * 4
    with pytest.raises(ConfigError, match="'email'"):
        await app.limit_state("email")
    app.limit("email", Concurrency(2), queues=["default"])
    assert (await app.limit_state("email")).kind == Concurrency(2)
    assert await app.drop_limit("nothing") is False


async def test_dropping_wakes_a_worker_that_sleeps_on_the_limit(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(1, per="1h"))
    await fill(app, paceline_time, 2)
    async with app.worker():
        await paceline_time.advance("10s")
        await app.drop_limit("email")
        await paceline_time.advance("1ms")
    assert timeline.starts() == [0, 10]


# unknown names


@pytest.mark.parametrize(
    "call",
    [
        lambda app: app.limit_state("nobody"),
        lambda app: app.hold("nobody", for_="1s"),
        lambda app: app.release("nobody"),
        lambda app: app.override("nobody", Rate(1, per="1s")),
        lambda app: app.override("nobody", None),
        lambda app: app.limiter("nobody").try_acquire(),
        lambda app: app.limiter("nobody").can_proceed(),
    ],
    ids=["limit_state", "hold", "release", "override", "lift", "try_acquire", "can_proceed"],
)
async def test_an_unknown_limit_is_an_error_that_lists_the_known_ones(app: App, call: Any) -> None:
    app.limit("email", Rate(1, per="1m"))
    with pytest.raises(ConfigError) as caught:
        await call(app)
    assert "'nobody'" in str(caught.value) and "email" in str(caught.value)


@pytest.mark.parametrize("group", ["a", None])
async def test_a_group_where_none_belongs_and_none_where_one_belongs_are_errors(app: App, group: str | None) -> None:
    app.limit("tenant" if group is None else "email", Rate(1, per="1m"), by="group" if group is None else None)
    with pytest.raises(ConfigError, match="group"):
        await app.limiter("tenant" if group is None else "email").try_acquire(group=group)


# looking


@pytest.mark.parametrize(
    ("kind", "used", "allowed", "next_start"),
    [
        (Rate(3, per="1m"), 3, 3, 60),
        (Rate(3, per="1m", guard="1s"), 3, 3, 61),
        (Rate(9, per="1m"), 5, 9, 10),
        (Concurrency(3), 0, 3, 10),
        (Delay("30s"), 1, 1, 30),
        (EvenlySpaced(6, per="5m"), 1, 1, 50),
        (Rate(3, per="1m") & Concurrency(100), 3, 3, 60),
        (Unlimited(), 0, None, 10),
    ],
    ids=repr,
)
async def test_limit_state_of_every_kind(
    app: App,
    paceline_time: VirtualTime,
    timeline: Timeline,
    kind: Any,
    used: int,
    allowed: int | None,
    next_start: float,
) -> None:
    app.limit("it", kind)
    await fill(app, paceline_time, 5)
    started = len(paceline_time.starts())
    await paceline_time.advance("10s")
    state = await app.limit_state("it")
    assert isinstance(state, LimitState)
    assert (state.kind, state.used, state.allowed) == (kind, used, allowed)
    assert (state.held_until, timeline.at(state.next_start_at)) == (None, next_start)
    assert state.waiting == 5 - started


async def test_limit_state_of_a_full_concurrency_has_no_known_next_start(app: App, paceline_time: VirtualTime) -> None:
    app.limit("slots", Concurrency(2))

    @app.task()
    async def step() -> None:
        await paceline_time.sleep("5s")

    await step.enqueue_many([()] * 3)
    async with app.worker():
        await paceline_time.advance("1s")
        state = await app.limit_state("slots")
        assert (state.used, state.allowed, state.next_start_at, state.waiting) == (2, 2, None, 1)
        await paceline_time.advance("10s")
    assert (await app.limit_state("slots")).used == 0


async def test_limit_state_shows_a_hold_until_it_is_over(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("email", Rate(3, per="1m"))
    await app.hold("email", for_="30s")
    state = await app.limit_state("email")
    assert (timeline.at(state.held_until), timeline.at(state.next_start_at), state.used) == (30, 30, 0)
    await paceline_time.advance("30s")
    state = await app.limit_state("email")
    assert (state.held_until, timeline.at(state.next_start_at)) == (None, 30)


async def test_limit_state_of_one_group(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    app.limit("tenant", Rate(2, per="1m"), by="group", overrides={"big": Rate(4, per="1m")})
    await fill(app, paceline_time, 3, group="small")
    await fill(app, paceline_time, 1, group="big")
    small, big = await app.limit_state("tenant", "small"), await app.limit_state("tenant", group="big")
    assert (small.used, small.allowed, small.waiting, timeline.at(small.next_start_at)) == (2, 2, 1, 60)
    assert (big.used, big.allowed, big.waiting, timeline.at(big.next_start_at)) == (1, 4, 0, 0)
    fresh = await app.limit_state("tenant", "nobody-yet")
    assert (fresh.used, fresh.allowed, fresh.waiting) == (0, 2, 0)
    assert (await app.limit_state("tenant")).waiting == 1


async def test_a_limit_takes_tasks_as_well_as_their_names(app: App, timeline: Timeline) -> None:
    @app.task()
    async def mail() -> None: ...

    @app.task(name="digest")
    async def other() -> None: ...

    limit = app.limit("service", Rate(1, per="10s"), tasks=[mail, "digest"])
    assert limit == Limit("service", Rate(1, per="10s"), tasks=[mail, other])
    assert limit.tasks == frozenset({"mail", "digest"})

    await mail.enqueue()
    await other.enqueue()
    async with app.worker():
        await timeline.time.advance("15s")
    assert timeline.starts() == [0, 10]


@pytest.mark.parametrize("wrong", [5, "mail", [], [5], [None]], ids=repr)
@pytest.mark.parametrize("option", ["tasks", "queues"])
def test_what_is_no_list_of_names_is_refused_in_words(app: App, option: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        Limit("service", Rate(1, per="1s"), **{option: wrong})
    with pytest.raises(ConfigError, match=option):
        app.limit("service", Rate(1, per="1s"), **{option: wrong})
    if option == "queues" and wrong != []:
        with pytest.raises(ConfigError, match="queue"):
            app.worker(queues=wrong)


async def test_a_cost_for_a_limit_that_does_not_exist_is_warned_of_once(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.limit("tokens", Rate(5000, per="1m"))

    @app.task(cost={"token": 1200})
    async def ask() -> None: ...

    for _ in range(3):
        await ask.enqueue()
    await ask.using(cost={"tokens": 10}).enqueue()
    await app.queue().add("ask", cost={"tokns": 10})

    warned = [record.getMessage() for record in caplog.records if "cost" in record.getMessage()]
    assert len(warned) == 2
    assert "'token'" in warned[0] and "tokens" in warned[0] and "'tokns'" in warned[1]


async def test_a_cost_for_a_limit_of_another_program_is_not_warned_of(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    worker = App(app.store)
    worker.limit("tokens", Rate(5000, per="1m"))
    await worker.limit_state("tokens")

    await app.queue().add("ask", cost={"tokens": 10})

    assert "cost" not in caplog.text


async def test_a_wait_that_is_too_short_says_how_long_it_was(app: App, timeline: Timeline) -> None:
    job = await app.queue().add("work")
    waiting = asyncio.ensure_future(job.result(timeout=5))
    await timeline.time.advance("6s")
    with pytest.raises(TimeoutError, match="did not finish within 5s;"):
        await waiting
