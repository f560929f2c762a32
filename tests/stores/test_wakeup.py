"""Wake-up: a sleeper is told when there may be something to do for it, and otherwise left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Listener, Outcome, Override, Store, Target

from .builders import (
    MINUTE,
    a_job_in,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    ending,
    finish,
    hold,
    soon,
    start,
)


@pytest.fixture
def ear(store):
    """`ear()`: an ear for the queue `line`, as a worker that sleeps has it."""
    ears: list[Listener] = []

    def listen(*queues: str, worker: str | None = None) -> Listener:
        ears.append(store.listen(queues or ("line",), worker))
        return ears[-1]

    yield listen
    for each in ears:
        each.close()


async def hears(listener: Listener) -> bool:
    """True as soon as the ear was told."""
    try:
        await soon(listener.event.wait())
    except TimeoutError:
        return False
    return True


async def heard_nothing(store: Store, listener: Listener) -> bool:
    """True when the ear was not told, although a message that was sent later has arrived elsewhere."""
    witness = store.listen(["witness"])
    await add(store, f"witness {id(witness)}", queue="witness")
    assert await hears(witness)
    witness.close()
    return not listener.event.is_set()


async def sleeps(store: Store) -> None:
    """A worker asked, got nothing, and would sleep now."""
    assert claimed(await claim(store, 5)) == []


# arrivals


async def test_a_job_that_arrives_wakes(store, ear):
    listener = ear()

    await add(store, "a")

    assert await hears(listener)


async def test_a_job_that_joins_others_wakes(store, ear):
    await add(store, "a", "b")
    await start(store)
    listener = ear()

    await add(store, "c")

    assert await hears(listener)


async def test_an_ear_for_several_queues_hears_each(store, ear):
    for queue in ("one", "two"):
        listener = ear("one", "two")

        await add(store, queue, queue=queue)

        assert await hears(listener)


async def test_all_ears_of_a_queue_hear(store, ear):
    listeners = [ear() for _ in range(3)]

    await add(store, "a")

    assert [await hears(listener) for listener in listeners] == [True, True, True]


async def test_a_delayed_job_that_arrives_wakes_because_it_says_when_to_ask_again(store, ear):
    await sleeps(store)
    listener = ear()

    await add(store, "a", delay="1s")

    assert await hears(listener)


async def test_a_job_that_arrives_from_another_thread_wakes(store, ear, in_threads):
    listener = ear()

    await in_threads(1, lambda other, _: add(other, "a"))

    assert await hears(listener)


async def test_an_event_that_was_heard_can_be_heard_again(store, ear):
    listener = ear()
    await add(store, "a")
    assert await hears(listener)
    listener.event.clear()

    await add(store, "b")

    assert await hears(listener)


# what else gives a sleeper something to do


async def resume(store: Store) -> None:
    await store.pause("line", None, None, True)
    await add(store, "a")


async def resume_task(store: Store) -> None:
    await store.pause("line", "work", None, True)
    await add(store, "a")


async def resume_group(store: Store) -> None:
    await store.pause("line", None, "acme", True)
    await add(store, "a", group="acme")


async def held(store: Store) -> None:
    await declare(store, "all", Concurrency(5))
    await hold(store, "all", for_="1h")
    await add(store, "a")


async def full_window(store: Store) -> None:
    await declare(store, "all", Rate(1, per="1h"))
    await add(store, "a", "b")
    await start(store)


async def full_window_of_a_group(store: Store) -> None:
    await declare(store, "all", Rate(1, per="1h"), by="group")
    await add(store, "a", "b", group="acme")
    await start(store)


async def lowered_by_the_operator(store: Store) -> None:
    await declare(store, "all", Rate(5, per="1h"))
    await store.override(Override(limit="all", kind=Rate(1, per="1h")), None)
    await add(store, "a", "b")
    await start(store)


async def delayed(store: Store) -> None:
    await add(store, "a", delay="1h")


async def failed(store: Store) -> None:
    await a_job_in(store, JobState.FAILED)


Step = Callable[[Store], Awaitable[object]]
CHANGES: dict[str, tuple[Step, Step]] = {
    "a resumed queue": (resume, lambda store: store.pause("line", None, None, False)),
    "a resumed task": (resume_task, lambda store: store.pause("line", "work", None, False)),
    "a resumed group": (resume_group, lambda store: store.pause("line", None, "acme", False)),
    "a released hold": (held, lambda store: store.release("all", None)),
    "a raised limit": (full_window, lambda store: declare(store, "all", Rate(2, per="1h"))),
    "a raised limit of groups": (
        full_window_of_a_group,
        lambda store: declare(store, "all", Rate(2, per="1h"), by="group"),
    ),
    "an operator's numbers": (
        full_window,
        lambda store: store.override(Override(limit="all", kind=Rate(2, per="1h")), None),
    ),
    "lifted numbers": (lowered_by_the_operator, lambda store: store.lift("all", None)),
    "a dropped limit": (full_window, lambda store: store.drop_limit("all")),
    "a cleared limit": (full_window, lambda store: store.clear("all", None)),
    "a promoted job": (delayed, lambda store: store.move(["a"], Move.PROMOTE)),
    "all jobs promoted": (delayed, lambda store: store.move_all("line", JobState.DELAYED, Move.PROMOTE)),
    "a retried job": (failed, lambda store: store.move(["a"], Move.RETRY)),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_lets_a_job_start_wakes(store, ear, change):
    prepare, act = CHANGES[change]
    await prepare(store)
    await sleeps(store)
    listener = ear()

    await act(store)

    assert await hears(listener)
    assert len((await claim(store, 5)).jobs) == 1


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED, Outcome.CRASHED])
async def test_a_job_that_comes_back_wakes(store, ear, outcome):
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)
    listener = ear()

    await finish(store, job, outcome)

    assert await hears(listener)


# slots


@pytest.mark.parametrize("scope", [{}, {"by": "group"}], ids=["shared", "group"])
async def test_a_slot_that_somebody_waits_for_wakes_when_it_is_free(store, ear, scope):
    await declare(store, "all", Concurrency(1), **scope)
    await add(store, "a", "b", group="acme")
    jobs = await start(store)
    await sleeps(store)
    listener = ear()

    await complete(store, jobs)

    assert await hears(listener)


async def test_a_slot_of_a_group_that_is_freed_in_another_queue_wakes(store, ear):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", group="acme", queue="other")
    await add(store, "b", group="acme")
    jobs = await start(store, queues=["other"])
    await sleeps(store)
    listener = ear()

    await complete(store, jobs)

    assert await hears(listener)


async def test_a_slot_that_a_claim_frees_on_its_way_wakes_other_sleepers(store, ear):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", queue="other")
    await add(store, "b")
    (job,) = await start(store, queues=["other"])
    await sleeps(store)
    listener = ear()

    await claim(store, queues=["other"], finishes=[ending(job)])

    assert await hears(listener)


async def test_a_slot_that_a_dead_worker_held_wakes_when_it_is_taken_back(store, clock, ear):
    await declare(store, "all", Concurrency(1))
    await add(store, "a", queue="other")
    await add(store, "b")
    await start(store, queues=["other"], lease="1m")
    await sleeps(store)
    listener = ear()
    clock.advance("1m")

    await claim(store, queues=["third"])

    assert await hears(listener)


async def test_a_permit_that_is_given_back_wakes(store, ear):
    await declare(store, "all", Concurrency(1))
    await add(store, "a")
    await store.acquire([Target("all")], "permit", MINUTE)
    await sleeps(store)
    listener = ear()

    await store.give_back(["permit"])

    assert await hears(listener)


async def test_a_slot_that_a_permit_waits_for_wakes_when_a_job_ends(store, ear):
    await declare(store, "all", Concurrency(1))
    await add(store, "a")
    jobs = await start(store)
    assert not (await store.acquire([Target("all")], "permit", MINUTE)).granted
    listener = ear()

    await complete(store, jobs)

    assert await hears(listener)


async def test_a_slot_of_a_limit_that_the_claim_named_wakes_when_it_is_free(store, ear):
    await declare(store, "shared", Concurrency(1), queues=["no queue of ours"])
    await add(store, "a", "b")
    jobs = await start(store, also=("shared",))
    assert claimed(await claim(store, also=("shared",))) == []
    listener = ear()

    await complete(store, jobs)

    assert await hears(listener)


async def test_room_that_was_kept_for_a_big_job_wakes_other_queues_when_the_job_is_cancelled(store, ear):
    await declare(store, "tokens", Rate(3, per="1h"))
    await add(store, "first", queue="other")
    await start(store, queues=["other"])
    await add(store, "big", queue="other", cost=3)
    assert claimed(await claim(store, queues=["other"])) == []
    await add(store, "small")
    await sleeps(store)
    listener = ear()

    await store.move(["big"], Move.CANCEL)

    assert await hears(listener)
    assert claimed(await claim(store)) == ["small"]


# a worker's own leases


async def test_a_cancel_wakes_the_worker_that_runs_the_job(store, ear):
    await add(store, "a")
    await start(store, worker="runs it")
    runs_it, other = ear(worker="runs it"), ear(worker="other")

    await store.move(["a"], Move.CANCEL)

    assert await hears(runs_it)
    assert (runs_it.heartbeat_due, other.heartbeat_due) == (True, False)


async def test_an_arrival_is_no_reason_for_a_heartbeat(store, ear):
    listener = ear(worker="worker")

    await add(store, "a")

    assert await hears(listener)
    assert listener.heartbeat_due is False


# empty queues


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED])
async def test_whoever_wants_to_know_hears_that_the_last_job_of_a_queue_ended(store, ear, outcome):
    job = await a_job_in(store, JobState.ACTIVE)
    listener = ear()
    listener.wants_empty = True

    await finish(store, job, outcome)

    assert await hears(listener)


async def test_nobody_hears_of_an_empty_queue_unasked(store, ear):
    job = await a_job_in(store, JobState.ACTIVE)
    listener = ear()

    await finish(store, job)

    assert await heard_nothing(store, listener)


@pytest.mark.parametrize("left", [{}, {"delay": "1h"}], ids=["waiting", "delayed"])
async def test_a_queue_that_has_jobs_left_is_not_empty(store, ear, left):
    job = await a_job_in(store, JobState.ACTIVE)
    await add(store, "b", **left)
    listener = ear()
    listener.wants_empty = True

    await finish(store, job)

    assert await heard_nothing(store, listener)


# quiet


async def test_a_job_in_another_queue_wakes_nobody_here(store, ear):
    listener = ear()

    await add_many(store, 3, queue="other")

    assert await heard_nothing(store, listener)


async def test_a_job_that_exists_already_wakes_nobody(store, ear):
    await add(store, "a", unique="key")
    listener = ear()

    await add(store, "a")
    await add(store, "b", unique="key")

    assert await heard_nothing(store, listener)


async def test_the_end_of_a_job_that_nobody_waits_for_wakes_nobody(store, ear):
    await declare(store, "all", Concurrency(5))
    await declare(store, "tenant", Concurrency(5), by="group")
    await add(store, "a", "b", group="acme")
    jobs = await start(store, 2)
    listener = ear()

    await complete(store, jobs)

    assert await heard_nothing(store, listener)


async def test_claims_notes_and_looks_wake_nobody(store, ear):
    await declare(store, "all", Rate(1, per="1h"))
    await add(store, "a", "b")
    listener = ear()

    (job,) = await start(store)
    await sleeps(store)
    await store.extend("worker", [], MINUTE)
    await store.usage("all", None)
    await store.standing(job.id)
    await store.prune()

    assert await heard_nothing(store, listener)


async def test_the_same_declaration_wakes_nobody(store, ear):
    await declare(store, "all", Rate(1, per="1h"))
    listener = ear()

    await declare(store, "all", Rate(1, per="1h"))

    assert await heard_nothing(store, listener)


async def test_a_closed_ear_hears_nothing(store):
    listener, open_ = store.listen(["line"]), store.listen(["line"])

    listener.close()
    await add(store, "a")

    assert await hears(open_)
    await asyncio.sleep(0)
    assert not listener.event.is_set()
    open_.close()
