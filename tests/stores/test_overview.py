"""Every queue at a glance: how many jobs are where, how many groups wait, and what is paused."""

from __future__ import annotations

from paceline.job import JobState
from paceline.stores.interface import QueueRecord

from .builders import a_job_in, add


def counts(**numbers: int) -> dict[str, int]:
    return {str(state): numbers.get(state.value, 0) for state in JobState}


async def test_an_empty_store_has_no_queues(store):
    assert await store.queues() == []


async def test_queues_are_listed_by_name_with_their_counts(store):
    await a_job_in(store, JobState.COMPLETED, "a", queue="ant")
    await a_job_in(store, JobState.DELAYED, "b", queue="ant")
    await add(store, "c", queue="ant", group="one")
    await add(store, "d", queue="ant", group="two")
    await add(store, "e", queue="zebra")

    assert await store.queues() == [
        QueueRecord(name="ant", counts=counts(waiting=2, completed=1, delayed=1), groups=2),
        QueueRecord(name="zebra", counts=counts(waiting=1), groups=1),
    ]


async def test_a_job_that_fell_due_waits(store, clock):
    await a_job_in(store, JobState.DELAYED, "a")
    clock.advance("2h")

    assert [(each.counts["waiting"], each.counts["delayed"]) for each in await store.queues()] == [(1, 0)]


async def test_pauses_are_listed_and_keep_an_empty_queue_in_sight(store):
    await store.pause("one", None, None, True)
    await store.pause("two", "mail", None, True)
    await store.pause("two", "fax", None, True)
    await store.pause("three", None, "tenant", True)
    found = await store.queues()
    await store.pause("one", None, None, False)

    assert found == [
        QueueRecord(name="one", counts=counts(), groups=0, paused=True),
        QueueRecord(name="three", counts=counts(), groups=0, paused_groups=("tenant",)),
        QueueRecord(name="two", counts=counts(), groups=0, paused_tasks=("fax", "mail")),
    ]
    assert [each.name for each in await store.queues()] == ["three", "two"]


async def test_another_namespace_is_not_seen(store, handle):
    await add(store, "a")

    async with handle("another") as other:
        assert await other.queues() == []


async def test_a_store_says_what_it_is(store):
    about = await store.about()

    assert about.server
    assert "://" in store.address
    assert all(isinstance(text, str) for text in (*about.facts, *about.facts.values(), *about.warnings))
