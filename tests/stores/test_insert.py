"""Step 1, insert: everything that was given is kept, and all of a bulk is stored or nothing."""

from __future__ import annotations

import msgspec
import pytest

from paceline.errors import NeverFits
from paceline.job import Backoff, JobState
from paceline.limits import Rate

from .builders import DAY, HOUR, MINUTE, SECOND, a_job, add, claim, claimed, declare, read, start, state_of


async def test_a_new_job_is_waiting_and_keeps_all_it_was_given(store, clock):
    job = a_job(
        "a",
        queue="mail",
        task="send",
        data=b'{"to":"x"}',
        group="acme",
        priority=-3,
        attempts=5,
        backoff=Backoff(delays=(1 * SECOND, 2 * SECOND), base=7, cap=9, jitter=0.25),
        timeout="90s",
        cost={"tokens": 7},
        keep="7d",
        unique="key",
        unique_ttl="1h",
    )

    await store.insert([job])

    record = await read(store, "a")
    assert (record.queue, record.task, record.data, record.group) == ("mail", "send", b'{"to":"x"}', "acme")
    assert (record.state, record.priority, record.cost) == (JobState.WAITING, -3, {"tokens": 7})
    assert (record.attempts, record.attempts_made, record.crashes, record.returns) == (5, 0, 0, 0)
    assert record.backoff == Backoff(delays=(1 * SECOND, 2 * SECOND), base=7, cap=9, jitter=0.25)
    assert (record.timeout, record.keep) == (90 * SECOND, 7 * DAY)
    assert (record.unique, record.unique_until) == ("key", clock.now() + HOUR)
    assert (record.created_at, record.due_at) == (clock.now(), clock.now())
    assert (record.started_at, record.finished_at, record.worker, record.error) == (None, None, None, None)
    assert (record.result, record.progress, record.message, record.logs) == (None, 0, None, ())
    assert record.cancel_asked is False


async def test_a_job_without_options_has_the_plainest_values(store):
    await add(store, "a")

    record = await read(store, "a")
    assert (record.data, record.group, record.priority, record.attempts, record.cost) == (b"null", None, 0, 1, 1)
    assert (record.timeout, record.backoff, record.keep) == (None, None, None)
    assert (record.unique, record.unique_until) == (None, None)


async def test_insert_answers_in_the_order_asked_with_what_is_stored(store):
    inserted = await store.insert([a_job("b"), a_job("a", queue="other"), a_job("c", delay="1s")])

    assert [(each.job.id, each.existed) for each in inserted] == [("b", False), ("a", False), ("c", False)]
    assert [each.job for each in inserted] == await store.get(["b", "a", "c"])


async def test_inserting_nothing_stores_nothing(store):
    assert await store.insert([]) == []


async def test_one_bulk_may_go_to_several_queues(store):
    await store.insert([a_job("a", queue="one"), a_job("b", queue="two")])

    assert claimed(await claim(store, 5, queues=["one"])) == ["a"]
    assert claimed(await claim(store, 5, queues=["two"])) == ["b"]


async def test_a_delay_counts_from_the_time_of_the_store(store, clock):
    (job,) = await add(store, "a", delay="5m")

    assert (job.state, job.created_at, job.due_at) == (JobState.DELAYED, clock.now(), clock.now() + 5 * MINUTE)


async def test_a_job_for_a_later_instant_is_delayed_until_it(store, clock):
    (job,) = await add(store, "a", due_at=clock.now() + 1)

    assert (job.state, job.due_at) == (JobState.DELAYED, clock.now() + 1)


@pytest.mark.parametrize("ago", [0, 1, HOUR])
async def test_a_job_for_an_instant_that_has_come_is_waiting(store, clock, ago):
    (job,) = await add(store, "a", due_at=clock.now() - ago)

    assert job.state is JobState.WAITING
    assert claimed(await claim(store)) == ["a"]


async def test_a_delayed_job_shows_as_waiting_from_the_instant_it_is_due(store, clock):
    await add(store, "a", delay="5s")

    clock.to(clock.now() + 5 * SECOND - 1)
    before = await state_of(store, "a")
    clock.to(clock.now() + 1)

    assert (before, await state_of(store, "a")) == (JobState.DELAYED, JobState.WAITING)


async def test_a_lifo_job_has_a_negative_place(store):
    (first,) = await add(store, "a")
    (last,) = await add(store, "b", lifo=True)

    assert first.order > 0 > last.order


async def test_places_grow_with_every_job(store):
    jobs = await add(store, "a", "b") + await add(store, "c", queue="other")

    assert [job.order for job in jobs] == sorted({job.order for job in jobs})


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"true",
        b"0",
        b"1.5",
        b'""',
        b"[]",
        b"{}",
        '{"name":"Zoë — 猫 🐈"}'.encode(),
        b'{"a":{"b":[1,{"c":null}]}}',
        b'"\\u0000 nul and \\"quotes\\" and %s ? :x $1"',
        msgspec.json.encode("x" * 300_000),
    ],
    ids=lambda data: data[:20].decode(errors="replace"),
)
async def test_the_data_comes_back_byte_for_byte(store, data):
    await add(store, "a", data=data)

    (job,) = await start(store)
    assert job.data == data
    assert (await read(store, "a")).data == data


@pytest.mark.parametrize(
    "name",
    ["q*", "q?[a]", "a:b:c", "{tag}", "it's", 'say "x"', "%", "a b", "ünïcødé-猫", "x" * 255, "None", "__ungrouped__"],
)
async def test_any_printable_name_is_only_a_name(store, name):
    names = {"queue": name, "task": name, "group": name}
    await add(store, f"id {name}"[:255], **names)
    await add(store, "plain", queue="qa")

    (job,) = await start(store, 1, queues=[name], tasks=frozenset([name]))

    assert (job.id, job.queue, job.task, job.group) == (f"id {name}"[:255], name, name, name)
    assert (await store.counts(name))["active"] == 1
    assert (await store.counts("qa"))["waiting"] == 1


@pytest.mark.parametrize("priority", [-(2**31) + 1, 2**31 - 1])
async def test_extreme_priorities_are_kept(store, priority):
    (job,) = await add(store, "a", priority=priority)

    assert job.priority == priority


async def test_nothing_of_a_bulk_is_stored_when_one_job_is_refused(store):
    await declare(store, "small", Rate(2, per="1s"), tasks=["big"])

    with pytest.raises(NeverFits):
        await store.insert(
            [a_job("a"), a_job("b", group="acme", delay="1s"), a_job("c", task="big", cost=3), a_job("d")]
        )

    assert await store.get(["a", "b", "c", "d"]) == []
    assert set((await store.counts("line")).values()) == {0}
    assert claimed(await claim(store, 5)) == []


async def test_a_refused_bulk_leaves_no_unique_key_behind(store):
    await declare(store, "small", Rate(2, per="1s"), tasks=["big"])
    with pytest.raises(NeverFits):
        await store.insert([a_job("a", unique="key"), a_job("b", task="big", cost=3)])

    (inserted,) = await store.insert([a_job("c", unique="key")])

    assert (inserted.job.id, inserted.existed) == ("c", False)


async def test_another_handle_sees_the_job(store, handle):
    await add(store, "a", data=b"1")

    async with handle() as other:
        assert await other.get(["a"]) == await store.get(["a"])
        assert claimed(await claim(other)) == ["a"]
    assert await state_of(store, "a") == JobState.ACTIVE


async def test_namespaces_share_neither_jobs_nor_limits(store, handle):
    await declare(store, "all", Rate(1, per="1h"))
    await add(store, "a")

    async with handle(namespace="elsewhere") as other:
        assert other.namespace == "elsewhere"
        assert (await other.get(["a"]), await other.limits()) == ([], [])
        await add(other, "a", "b", "c")
        assert claimed(await claim(other, 5)) == ["a", "b", "c"]
    assert (await store.counts("line"))["waiting"] == 1


async def test_opening_twice_keeps_everything(store):
    await add(store, "a")

    await store.open()

    assert claimed(await claim(store)) == ["a"]
