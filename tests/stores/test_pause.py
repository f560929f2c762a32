"""Pauses of a queue, a task or a group: nothing of it starts, and nothing else is touched."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.job import JobState
from paceline.limits import Concurrency
from paceline.stores.interface import Lease, Outcome

from .builders import HOUR, MINUTE, add, add_many, claim, claimed, complete, declare, finish, start, state_of

WHAT = {"queue": (None, None), "task": ("work", None), "group": (None, "acme")}


@pytest.fixture(params=WHAT)
def what(request) -> tuple[str | None, str | None]:
    """The task and the group that are paused; neither: the queue."""
    return WHAT[request.param]


async def test_what_is_paused_does_not_start_until_it_is_resumed(store, what):
    await add(store, "a", group="acme")
    await store.pause("line", *what, True)
    paused = await claim(store)

    await store.pause("line", *what, False)

    assert (claimed(paused), paused.ask_again_at) == ([], NEVER)
    assert claimed(await claim(store)) == ["a"]


async def test_a_pause_holds_for_jobs_that_arrive_later(store, what):
    await store.pause("line", *what, True)

    await add(store, "a", group="acme")

    assert claimed(await claim(store)) == []
    assert await state_of(store, "a") == JobState.WAITING


async def test_a_pause_holds_for_the_next_job_of_a_queue_that_has_worked_and_is_idle(store, what):
    for number in range(3):
        await add(store, f"{number}", group="acme")
        await complete(store, await start(store))
    await store.pause("line", *what, True)

    await add(store, "a", group="acme")

    assert claimed(await claim(store)) == []
    await store.pause("line", *what, False)
    assert claimed(await claim(store)) == ["a"]


async def test_an_idle_queue_gives_nobody_a_task_that_he_does_not_know(store):
    await claim(store, tasks=frozenset(["other"]))
    for number in range(3):
        await add(store, f"{number}")
        await complete(store, await start(store))

    await add(store, "a")

    assert claimed(await claim(store, tasks=frozenset(["other"]))) == []
    assert claimed(await claim(store, tasks=frozenset(["work"]))) == ["a"]


async def test_what_runs_goes_on(store, what):
    await add(store, "a", group="acme")
    (job,) = await start(store)

    await store.pause("line", *what, True)

    assert (await store.extend("worker", [Lease("a", job.fence)], MINUTE)).lost == []
    await finish(store, job)
    assert await state_of(store, "a") == JobState.COMPLETED


async def test_a_pause_is_seen_by_everybody(store, handle, what):
    await add(store, "a", group="acme")
    async with handle() as other:
        await other.pause("line", *what, True)

    assert claimed(await claim(store)) == []


async def test_delayed_jobs_become_due_during_a_pause(store, clock, what):
    await add(store, "a", group="acme", delay="1s")
    await store.pause("line", *what, True)

    clock.advance("1s")
    paused = claimed(await claim(store))

    assert (paused, await state_of(store, "a")) == ([], JobState.WAITING)
    assert (await store.counts("line"))["waiting"] == 1
    await store.pause("line", *what, False)
    assert claimed(await claim(store)) == ["a"]


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED, Outcome.CRASHED])
async def test_a_job_that_comes_back_during_a_pause_waits_for_its_end(store, what, outcome):
    await add(store, "a", group="acme", attempts=2)
    (job,) = await start(store)
    await store.pause("line", *what, True)

    await finish(store, job, outcome)

    assert claimed(await claim(store)) == []
    await store.pause("line", *what, False)
    assert claimed(await claim(store)) == ["a"]


async def test_pausing_twice_needs_one_resume(store, what):
    await add(store, "a", group="acme")
    await store.pause("line", *what, True)
    await store.pause("line", *what, True)

    await store.pause("line", *what, False)

    assert claimed(await claim(store)) == ["a"]


async def test_resuming_what_is_not_paused_does_nothing(store, what):
    await add(store, "a", group="acme")

    await store.pause("line", *what, False)

    assert claimed(await claim(store, 5)) == ["a"]


async def test_a_pause_does_not_touch_another_queue(store, what):
    await add(store, "a", group="acme", queue="other")

    await store.pause("line", *what, True)

    assert claimed(await claim(store, queues=["line", "other"])) == ["a"]


async def test_jobs_keep_their_order_over_a_pause(store, what):
    await add(store, "a", "b", group="acme")
    await store.pause("line", *what, True)
    await add(store, "c", group="acme")
    await add(store, "urgent", group="acme", priority=-1)

    await store.pause("line", *what, False)

    assert claimed(await claim(store, 5)) == ["urgent", "a", "b", "c"]


async def test_a_paused_task_hides_no_other_task(store):
    await add_many(store, 200, task="paused", priority=-1)
    await add(store, "other", task="work")

    await store.pause("line", "paused", None, True)

    assert claimed(await claim(store, 5)) == ["other"]


async def test_a_paused_task_hides_no_other_task_of_its_group(store):
    await add_many(store, 200, task="paused", group="acme")
    await add(store, "other", task="work", group="acme")

    await store.pause("line", "paused", None, True)

    assert claimed(await claim(store, 5)) == ["other"]


async def test_a_paused_group_hides_no_other_group(store):
    await add_many(store, 200, group="paused")
    await add(store, "other", group="acme")
    await add(store, "none")

    await store.pause("line", None, "paused", True)

    assert claimed(await claim(store, 5)) == ["other", "none"]


async def test_a_paused_group_is_paused_for_all_its_tasks(store):
    await store.pause("line", None, "acme", True)

    await add(store, "a", task="work", group="acme")
    await add(store, "b", task="other", group="acme")

    assert claimed(await claim(store, 5)) == []


@pytest.mark.parametrize("first", WHAT)
@pytest.mark.parametrize("second", WHAT)
async def test_each_pause_is_lifted_on_its_own(store, first, second):
    await add(store, "a", group="acme")
    await store.pause("line", *WHAT[first], True)
    await store.pause("line", *WHAT[second], True)

    await store.pause("line", *WHAT[first], False)

    assert claimed(await claim(store)) == (["a"] if first == second else [])


async def test_a_slot_that_is_freed_during_a_pause_starts_nothing(store, what):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", "b", group="acme")
    jobs = await start(store)
    assert claimed(await claim(store)) == []
    await store.pause("line", *what, True)

    await complete(store, jobs)

    assert claimed(await claim(store)) == []
    await store.pause("line", *what, False)
    assert claimed(await claim(store)) == ["b"]


async def test_a_pause_survives_new_limits_and_new_workers(store, what):
    await add(store, "a", group="acme")
    await store.pause("line", *what, True)

    await declare(store, "mail", Concurrency(5), tasks=["work"])
    await declare(store, "tenant", Concurrency(5), by="group")

    assert claimed(await claim(store, worker="new", tasks=frozenset(["work", "more"]))) == []
    await store.drop_limit("mail")
    assert claimed(await claim(store)) == []


async def test_a_paused_group_stays_paused_when_its_tasks_part(store):
    await add(store, "a", task="work", group="acme")
    await add(store, "b", task="other", group="acme")
    await store.pause("line", None, "acme", True)
    assert claimed(await claim(store, 5)) == []

    await declare(store, "mail", Concurrency(5), tasks=["work"])

    assert claimed(await claim(store, 5)) == []
    await store.pause("line", None, "acme", False)
    assert claimed(await claim(store, 5)) == ["a", "b"]


async def test_a_pause_survives_an_empty_queue_and_a_clean_up(store, clock, what):
    await add(store, "a", group="acme", keep=0)
    jobs = await start(store)
    await store.pause("line", *what, True)
    await complete(store, jobs)
    clock.to(clock.now() + 2 * HOUR)
    await store.prune()

    await add(store, "b", group="acme")

    assert claimed(await claim(store)) == []
