"""Names, ids and keys with what no store can keep are refused at the call; payloads likewise; reasons are cleaned."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import (
    App,
    Concurrency,
    ConfigError,
    Group,
    Limit,
    Limiter,
    NotSerializable,
    Queue,
    Rate,
    RateLimited,
    Unique,
    Worker,
    open_store,
)

NASTY = ["a\x00b", "\udc80", "x" * 300, ""]


async def nothing(job: Any) -> None: ...


CALLS: dict[str, Any] = {
    "add a task": lambda app, name: app.queue("q").add(name),
    "add an id": lambda app, name: app.queue("q").add("t", job_id=name),
    "add a group": lambda app, name: app.queue("q").add("t", group=name),
    "add a sized group": lambda app, name: app.queue("q").add("t", group=Group(name, 5)),
    "add a key": lambda app, name: app.queue("q").add("t", unique=Unique(name)),
    "add a cost": lambda app, name: app.queue("q").add("t", cost={name: 1}),
    "get": lambda app, name: app.get(name),
    "get of a queue": lambda app, name: app.queue("q").get(name),
    "explain": lambda app, name: app.queue("q").explain(name),
    "list a task": lambda app, name: app.queue("q").list(task=name),
    "list a group": lambda app, name: app.queue("q").list(group=name),
    "list after": lambda app, name: app.queue("q").list(after=name),
    "pause a task": lambda app, name: app.queue("q").pause(task=name),
    "pause a group": lambda app, name: app.queue("q").pause(group=name),
    "resume a task": lambda app, name: app.queue("q").resume(task=name),
    "resume a group": lambda app, name: app.queue("q").resume(group=name),
    "state": lambda app, name: app.limit_state(name),
    "state of a group": lambda app, name: app.limit_state("by group", group=name),
    "hold": lambda app, name: app.hold(name, for_=1),
    "hold a group": lambda app, name: app.hold("by group", for_=1, group=name),
    "release": lambda app, name: app.release(name),
    "release a group": lambda app, name: app.release("by group", group=name),
    "override": lambda app, name: app.override(name, Rate(1, per="1h")),
    "override a group": lambda app, name: app.override("by group", Rate(1, per="1h"), group=name),
    "lift": lambda app, name: app.override(name, None),
    "lift a group": lambda app, name: app.override("by group", None, group=name),
    "drop": lambda app, name: app.drop_limit(name),
    "acquire": lambda app, name: app.limiter("by group").try_acquire(group=name),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_name_that_no_store_can_keep_is_refused_at_the_call(store, call):
    app = App(store)
    app.limit("by group", Rate(9, per="1h"), by="group")

    for name in NASTY:
        with pytest.raises(ConfigError, match="is wrong: expected"):
            await CALLS[call](app, name)

    assert sum((await app.queue("q").counts()).values()) == 0


@pytest.mark.parametrize("name", NASTY)
def test_a_name_that_no_store_can_keep_is_refused_where_it_is_written(name):
    makers: list[Any] = [
        lambda: Queue(name, store="memory://"),
        lambda: Worker(name, nothing, store="memory://"),
        lambda: Worker("q", nothing, store="memory://", name=name),
        lambda: Limit(name, Concurrency(1)),
        lambda: Limit("x", Concurrency(1), queues=[name]),
        lambda: Limit("x", Concurrency(1), tasks=[name]),
        lambda: Limit("x", Concurrency(1), by="group", overrides={name: Concurrency(2)}),
        lambda: Limiter(name, Concurrency(1), store="memory://"),
        lambda: App().limiter(name),
        lambda: App().task(name=name)(nothing),
        lambda: App().task(queue=name)(nothing),
        lambda: App().queue(name),
        lambda: App().worker(queues=[name]),
        lambda: App(namespace=name),
        lambda: open_store("memory://", namespace=name),
        lambda: RateLimited(limit=name),
        lambda: Group(name),
        lambda: Unique(name),
    ]
    for place, make in enumerate(makers):
        with pytest.raises(ConfigError, match="is wrong: expected"):
            raise AssertionError(f"{place}: {make()!r}")


@pytest.mark.parametrize("data", ["\ud800", {"\udc80": 1}, [{"a": ["x\udfff"]}]])
async def test_data_with_a_lone_surrogate_are_refused_in_words(store, data):
    queue = Queue("q", store=store)

    with pytest.raises(NotSerializable, match="contains the lone surrogate"):
        await queue.add("t", data)
    with pytest.raises(NotSerializable, match="contains the lone surrogate"):
        await queue.add_many([("t", 1), ("t", data)])

    assert (await queue.counts())["waiting"] == 0


async def test_reasons_are_cleaned_and_bounded(store):
    app = App(store)
    app.limit("x", Rate(9, per="1h"))
    await app.hold("x", for_="1h", reason="a\x00b\udc80")
    for reason in ("a\x00b\udc80", "x" * 100_000):
        await app.override("x", Rate(5, per="1h"), reason=reason)
    (word,) = await store.overrides()

    assert word.reason.endswith("x… (100,000 characters)")
    assert len(word.reason) == 1024
    assert (await app.limit_state("x")).held_until is not None


async def test_names_of_a_subclass_of_text_are_plain_text(store):
    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise RuntimeError("never asked")

    queue = Queue(Name("q"), store=store)
    job = await queue.add(Name("t"), group=Name("g"), job_id=Name("i"), unique=Unique(Name("k")), cost={Name("x"): 2})
    await Worker(Name("q"), nothing, store=store, name=Name("w")).run(until_empty=True)

    assert ((await job.refresh()).state, job.id, job.group) == ("completed", "i", "g")
