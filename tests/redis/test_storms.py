"""Very many things that fall due at one instant: a claim does a bounded part of it, and others start meanwhile."""

from __future__ import annotations

from paceline.job import NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores.interface import Ask, Claim, Hold, Store

MINUTE = 60_000_000
SLOTS = 2
MOST = 2 * SLOTS + 64
"""What one claim moves of a kind."""
STORM = 5 * MOST


async def claim(store: Store, *queues: str, worker: str = "w", lease: int = MINUTE) -> Claim:
    return await store.claim(Ask(queues=queues, slots=SLOTS, worker=worker, lease=lease))


async def until_due(store: Store) -> None:
    deadline = store.clock.now() + 100_000
    while store.clock.now() < deadline:
        await store.counts("line")


async def test_delayed_jobs_of_a_closed_limit_hold_up_nobody(store):
    await store.set_limits([Limit("closed", Rate(1, per="1h"), tasks=["storm", "first"])])
    await store.insert([NewJob("first", "line", "first")])
    assert len((await claim(store, "line")).jobs) == 1
    await store.insert(
        [NewJob(f"storm {number}", "line", "storm", group="big", delay=50_000) for number in range(STORM)]
    )
    await until_due(store)
    await store.insert([NewJob("free", "line", "free", group="small"), NewJob("other", "second", "free")])

    answer = await claim(store, "line", "second")

    assert sorted(job.id for job in answer.jobs) == ["free", "other"]
    for _ in range(STORM // MOST - 1):
        assert answer.ask_again_at == answer.now
        answer = await claim(store, "line", "second")
        assert answer.jobs == []
    assert answer.ask_again_at == answer.now
    assert (await claim(store, "line", "second")).ask_again_at > answer.now


async def test_those_due_in_one_queue_hold_up_no_due_job_of_another(store):
    await store.set_limits([Limit("closed", Rate(1, per="1h"), tasks=["storm", "first"])])
    await store.insert([NewJob("first", "line", "first")])
    assert len((await claim(store, "line")).jobs) == 1
    jobs = [NewJob(f"storm {number}", "line", "storm", delay=50_000) for number in range(STORM)]
    await store.insert([*jobs, NewJob("due", "second", "free", delay=50_000)])
    await until_due(store)
    assert [job.id for job in (await claim(store, "line", "second")).jobs] == ["due"]


async def test_groups_that_open_at_one_instant_hold_up_nobody(store):
    await store.set_limits([Limit("each", Concurrency(1), tasks=["storm"], by="group")])
    jobs = [NewJob(f"storm {number}", "line", "storm", group=f"group {number}") for number in range(STORM)]
    await store.insert(jobs)
    await store.hold([Hold(limit="each", for_=300_000)])
    while (await claim(store, "line")).ask_again_at <= store.clock.now():
        pass  # until every group is filed as held
    await store.insert([NewJob("other", "second", "free")])
    for _ in range(3):
        await until_due(store)
    assert "other" in [job.id for job in (await claim(store, "line", "second")).jobs]


async def test_leases_that_end_at_one_instant_hold_up_nobody(store):
    jobs = [NewJob(f"storm {number}", "line", "storm", group="big") for number in range(STORM)]
    await store.insert(jobs)
    dead = Ask(queues=("line",), slots=STORM, worker="dead", lease=50_000)
    assert len((await store.claim(dead)).jobs) == STORM
    await store.insert([NewJob("free", "line", "free", group="small"), NewJob("other", "second", "free")])
    await until_due(store)
    started = [job.id for job in (await claim(store, "line", "second")).jobs]
    assert "other" in started
