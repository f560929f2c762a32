"""Jobs that are added at the same time share a statement, and nobody notices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import GroupFull, StoreError, StoreUnavailable
from paceline.job import Backoff, NewJob
from paceline.stores.interface import Ask
from paceline.stores.postgres.texts import ADD_ONE, INSERT


def count_statements(store: Any, monkeypatch: Any) -> list[str]:
    """The statements with jobs that a store sends from now on."""
    sent: list[str] = []
    rows = store.calls.rows

    async def counted(query: str, *values: Any, **how: Any) -> list[tuple[Any, ...]]:
        if query in (ADD_ONE, INSERT):
            sent.append(query)
        found: list[tuple[Any, ...]] = await rows(query, *values, **how)
        return found

    monkeypatch.setattr(store.calls, "rows", counted)
    return sent


async def test_two_hundred_who_add_at_once_need_a_few_statements(store, monkeypatch):
    sent = count_statements(store, monkeypatch)

    added = await asyncio.gather(*(store.insert([NewJob(f"{n}", "line", "work")]) for n in range(200)))

    assert [each[0].job.id for each in added] == [f"{n}" for n in range(200)]
    assert [each[0].existed for each in added] == [False] * 200
    assert len({each[0].job.order for each in added}) == 200
    assert (await store.counts("line"))["waiting"] == 200
    assert len(sent) <= 4


async def test_one_after_the_other_is_a_statement_each(store, monkeypatch):
    sent = count_statements(store, monkeypatch)

    for n in range(5):
        await store.insert([NewJob(f"{n}", "line", "work", fresh=n < 3)])

    assert sent == [ADD_ONE] * 3 + [INSERT] * 2


async def test_an_id_that_may_be_there_already_is_one_statement_too(store, monkeypatch):
    sent = count_statements(store, monkeypatch)

    first, second = [await store.insert([NewJob("a", "line", "work", fresh=False)]) for _ in range(2)]

    assert [first[0].existed, second[0].existed] == [False, True]
    assert sent == [INSERT] * 2


async def test_options_and_groups_of_jobs_that_go_together_stay_their_own(store):
    jobs = [
        NewJob(
            f"{n}",
            f"line-{n % 2}",
            f"task-{n % 3}",
            data=b"%d" % n,
            group=f"g{n}" if n % 4 else None,
            priority=n % 5,
            lifo=n % 2 == 0,
            attempts=1 + n % 3,
            backoff=Backoff(delays=(n % 2,)) if n % 3 else None,
            timeout=1_000_000 * (n % 2) or None,
            keep=None if n % 2 else 60_000_000,
            fresh=True,
        )
        for n in range(60)
    ]

    for job in jobs[:12]:
        await store.insert([job])
    await asyncio.gather(*(store.insert([job]) for job in jobs[12:]))

    found = {job.id: job for job in await store.get([job.id for job in jobs])}
    for job in jobs:
        kept = found[job.id]
        for name in ("queue", "task", "data", "group", "priority", "attempts", "backoff", "timeout", "keep"):
            assert getattr(kept, name) == getattr(job, name), (job.id, name)
        assert (kept.order < 0) == job.lifo


async def test_one_id_that_many_add_at_once_is_one_job(store):
    added = await asyncio.gather(*(store.insert([NewJob(f"{n % 3}", "line", "work")]) for n in range(30)))

    assert sum(not each[0].existed for each in added) == 3
    assert [each[0].job.id for each in added] == [f"{n % 3}" for n in range(30)]
    assert (await store.counts("line"))["waiting"] == 3


async def test_a_bulk_with_an_id_that_is_there_adds_the_others_and_leaves_no_trace_of_trying(store, sql):
    await store.insert([NewJob("3", "line", "work")])

    added = await store.insert([NewJob(f"{n}", "line", "work") for n in range(6)])

    assert [each.existed for each in added] == [n == 3 for n in range(6)]
    assert sql.execute("select count(*) from paceline.wait").fetchone() == (6,)
    claim = await store.claim(Ask(queues=("line",), slots=9, worker="w", lease=60_000_000, claim_id="1"))
    assert [job.id for job in claim.jobs] == ["3", "0", "1", "2", "4", "5"]


async def test_a_job_that_cannot_be_stored_fails_alone(store, monkeypatch):
    rows = store.calls.rows

    async def refuse(query: str, *values: Any, **how: Any) -> Any:
        if query in (ADD_ONE, INSERT) and "bad" in str(values[2]):
            raise StoreError("the server does not like it")
        return await rows(query, *values, **how)

    monkeypatch.setattr(store.calls, "rows", refuse)

    added = await asyncio.gather(
        *(store.insert([NewJob("bad" if n == 20 else f"{n}", "line", "work")]) for n in range(40)),
        return_exceptions=True,
    )

    assert [n for n, each in enumerate(added) if isinstance(each, Exception)] == [20]
    assert (await store.counts("line"))["waiting"] == 39


async def test_all_hear_that_the_server_is_gone_and_the_next_ones_are_served_again(store, monkeypatch):
    rows = store.calls.rows

    async def gone(query: str, *values: Any, **how: Any) -> Any:
        raise StoreUnavailable("the server is down")

    monkeypatch.setattr(store.calls, "rows", gone)
    failed = await asyncio.gather(
        *(store.insert([NewJob(f"{n}", "line", "work")]) for n in range(20)), return_exceptions=True
    )
    monkeypatch.setattr(store.calls, "rows", rows)

    assert [type(each) for each in failed] == [StoreUnavailable] * 20
    await asyncio.gather(*(store.insert([NewJob(f"{n}", "line", "work")]) for n in range(20)))
    assert (await store.counts("line"))["waiting"] == 20


async def test_whoever_gives_up_waiting_takes_nobody_along(store):
    adds = [asyncio.create_task(store.insert([NewJob(f"{n}", "line", "work")])) for n in range(30)]
    await asyncio.sleep(0)
    for task in adds[10:20]:
        task.cancel()
    done = await asyncio.gather(*adds, return_exceptions=True)

    assert [isinstance(each, list) for each in done] == [not 10 <= n < 20 for n in range(30)]
    await store.insert([NewJob("last", "line", "work")])
    assert (await store.counts("line"))["waiting"] == 21


async def test_jobs_that_have_something_to_settle_go_alone(store, monkeypatch):
    sent = count_statements(store, monkeypatch)
    jobs = [NewJob(f"{n}", "line", "work", group="g", group_max_size=5) for n in range(8)]

    done = await asyncio.gather(*(store.insert([job]) for job in jobs), return_exceptions=True)

    assert sum(isinstance(each, GroupFull) for each in done) == 3
    assert sent == [INSERT] * 8


@pytest.mark.parametrize("lifo", [False, True])
async def test_the_short_way_and_the_long_way_add_the_same(store, sql, lifo):
    """A delay of nothing but a size that nobody reaches takes the long way."""

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=12))
    def same(groups: list[str | None]) -> None:
        seen.append(groups)

    seen: list[list[str | None]] = []
    same()
    for run, groups in enumerate(seen):
        short, long = f"short-{run}", f"long-{run}"
        await store.insert([NewJob(f"s{run}-{n}", short, "work", group=g, lifo=lifo) for n, g in enumerate(groups)])
        await store.insert(
            [
                NewJob(f"l{run}-{n}", long, "work", group=g, lifo=lifo, group_max_size=99 if g else None, cost=1)
                for n, g in enumerate(groups)
            ]
            + [NewJob(f"l{run}-late", long, "work", delay=3_600_000_000)]
        )
        orders = []
        for queue in (short, long):
            claim = await store.claim(Ask(queues=(queue,), slots=99, worker="w", lease=60_000_000, claim_id=queue))
            orders.append([(job.id.split("-")[1], job.group) for job in claim.jobs])
        assert orders[0] == orders[1]
