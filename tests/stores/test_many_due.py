"""However much falls due at one instant, a claim moves a bounded part of it, and whatever else may start does."""

from __future__ import annotations

from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Ask

from .builders import a_job, add, ask, claim, claimed, declare, start_all

MANY = 700


async def storm(store, clock, *, queue="line", **changes):
    """Jobs of one group that fall due together, now."""
    await store.insert([a_job(f"storm-{n}", queue=queue, group="big", delay="10s", **changes) for n in range(MANY)])
    clock.advance("10s")


async def test_jobs_of_others_start_while_many_are_due_behind_a_closed_limit(store, clock):
    await declare(store, "closed", Rate(1, per="1h"), tasks=["storm"])
    await add(store, "first", task="storm")
    await start_all(store)
    await storm(store, clock, task="storm")
    await add(store, "mine", group="small")
    await add(store, "theirs", queue="row", group="small")

    answer = await claim(store, 3, queues=["line", "row"])

    assert sorted(claimed(answer)) == ["mine", "theirs"]
    assert answer.ask_again_at == answer.now  # there is more to move


async def test_jobs_that_are_due_together_start_in_their_order(store, clock):
    await storm(store, clock, queue="line")
    order = []
    while len(order) < MANY:
        answer = await claim(store, 10)
        assert answer.jobs or answer.ask_again_at == answer.now
        order += claimed(answer)

    assert order == [f"storm-{n}" for n in range(MANY)]


async def test_every_queue_of_a_worker_has_a_bound_of_its_own(store, clock):
    await declare(store, "closed", Concurrency(1), tasks=["storm"])
    await add(store, "first", task="storm")
    await start_all(store)
    await storm(store, clock, task="storm")
    await store.insert([a_job("late", queue="row", delay="1s")])
    clock.advance("1s")

    assert claimed(await claim(store, 1, queues=["line", "row"])) == ["late"]


async def test_lanes_that_open_together_hide_no_other(store, clock):
    await declare(store, "tenant", Rate(1, per="10s"), by="group")
    await declare(store, "slow", Concurrency(1), tasks=["slow"])
    for queue in ("line", "row"):
        await store.insert([a_job(queue=queue, group=f"g{n}", task="slow") for n in range(200)])
    await start_all(store, queues=["line", "row"])
    await store.insert([a_job(f"free-{queue}", queue=queue) for queue in ("line", "row")])

    asked: Ask = ask(4, queues=["line", "row"])
    assert sorted(claimed(await store.claim(asked))) == ["free-line", "free-row"]


async def test_everything_that_was_due_is_moved_in_the_end(store, clock):
    await declare(store, "closed", Rate(1, per="1h"), tasks=["storm"])
    await storm(store, clock, task="storm")

    started = await start_all(store, 5)

    assert [job.id for job in started] == ["storm-0"]
    assert (await claim(store, 5)).ask_again_at > clock.now()
    assert (await store.counts("line"))["waiting"] == MANY - 1


async def test_leases_that_end_together_hold_up_no_other_queue(store, clock):
    await store.insert([a_job(f"lost-{n}", group="big") for n in range(MANY)])
    assert len((await claim(store, MANY, worker="dead", lease=10_000_000)).jobs) == MANY
    await add(store, "theirs", queue="row")
    clock.advance("10s")

    answer = await claim(store, 3, queues=["line", "row"])

    assert "theirs" in claimed(answer)
    assert answer.ask_again_at == answer.now
