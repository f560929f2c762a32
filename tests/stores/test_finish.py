"""Step 4, finish: where a job goes after its run, and who may say so."""

from __future__ import annotations

import pytest

from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate
from paceline.stores.interface import Finish, Lease, Outcome

from .builders import (
    HOUR,
    MINUTE,
    SECOND,
    a_job_in,
    a_note,
    add,
    claim,
    claimed,
    complete,
    declare,
    ending,
    finish,
    read,
    start,
    state_of,
    usage,
)

COMES_BACK = [Outcome.RETRY, Outcome.RETURNED, Outcome.RELEASED, Outcome.CRASHED]
FINAL = {
    Outcome.COMPLETED: JobState.COMPLETED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
}

# the outcomes


@pytest.mark.parametrize(("outcome", "state"), FINAL.items())
async def test_a_final_outcome_ends_the_job(store, clock, outcome, state):
    await add(store, "a", attempts=3)
    (job,) = await start(store)
    clock.advance("2s")

    await finish(store, job, outcome)

    record = await read(store, "a")
    assert (record.state, record.finished_at, record.worker) == (state, clock.now(), None)
    assert (record.started_at, record.attempts_made) == (job.started_at, 1)
    assert claimed(await claim(store)) == []


@pytest.mark.parametrize("result", [b"null", b"0", b"false", b'""', b"[]", b'{"a":1}', '"Zoë"'.encode()])
async def test_a_completed_job_keeps_its_result_byte_for_byte(store, result):
    job = await a_job_in(store, JobState.ACTIVE)

    await finish(store, job, result=result)

    assert (await read(store, "a")).result == result


async def test_a_failed_job_keeps_its_error(store):
    job = await a_job_in(store, JobState.ACTIVE)

    await finish(store, job, Outcome.FAILED, error="ValueError: no 'quotes' 猫")

    assert (await read(store, "a")).error == "ValueError: no 'quotes' 猫"


async def test_many_runs_may_end_in_one_step(store):
    await add(store, "a", "b", "c")
    first, second, third = await start(store, 3)

    lost = await store.finish([ending(first), ending(second, Outcome.FAILED), ending(third, Outcome.RELEASED)])

    assert lost == []
    assert [job.state for job in await store.get(["a", "b", "c"])] == ["completed", "failed", "waiting"]


# coming back


async def test_a_retry_uses_an_attempt(store):
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)

    await finish(store, job, Outcome.RETRY, error="broken pipe")

    record = await read(store, "a")
    assert (record.state, record.attempts_made, record.error) == (JobState.WAITING, 1, "broken pipe")
    (job,) = await start(store)
    assert job.attempts_made == 2


@pytest.mark.parametrize("how", ["after", "at"])
async def test_a_retry_starts_exactly_at_its_time(store, clock, how):
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)
    due_at = clock.now() + 30 * SECOND

    await finish(store, job, Outcome.RETRY, **{"after": {"after": "30s"}, "at": {"at": due_at}}[how])

    record = await read(store, "a")
    assert (record.state, record.due_at, record.worker) == (JobState.DELAYED, due_at, None)
    clock.to(due_at - 1)
    answer = await claim(store)
    assert (claimed(answer), answer.ask_again_at) == ([], due_at)
    clock.to(due_at)
    assert claimed(await claim(store)) == ["a"]


async def test_a_retry_at_an_instant_that_has_passed_is_due_at_once(store, clock):
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)

    await finish(store, job, Outcome.RETRY, at=clock.now() - HOUR)

    assert claimed(await claim(store)) == ["a"]


async def test_a_retry_when_open_is_due_at_the_latest_next_start_of_its_limits(store, clock):
    await declare(store, "all", Rate(1, per="1m"))
    await declare(store, "mail", Rate(1, per="10m"), tasks=["work"])
    await declare(store, "not met", Rate(1, per="1h"), tasks=["other"])
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)
    clock.advance("5s")

    await finish(store, job, Outcome.RETRY, when_open=True)

    record = await read(store, "a")
    assert (record.state, record.due_at) == (JobState.DELAYED, job.started_at + 10 * MINUTE)


async def test_a_retry_when_open_is_due_at_once_when_all_limits_are_open(store, clock):
    await declare(store, "all", Rate(5, per="1m"))
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)

    await finish(store, job, Outcome.RETRY, when_open=True)

    record = await read(store, "a")
    assert (record.state, record.due_at) == (JobState.WAITING, clock.now())


async def test_a_retry_when_open_does_not_wait_for_its_own_slot(store, clock):
    await declare(store, "all", Concurrency(1))
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)

    await finish(store, job, Outcome.RETRY, when_open=True)

    assert (await read(store, "a")).state is JobState.WAITING
    assert claimed(await claim(store)) == ["a"]


@pytest.mark.parametrize(
    ("outcome", "returns", "crashes"), [(Outcome.RETURNED, 1, 0), (Outcome.RELEASED, 0, 0), (Outcome.CRASHED, 0, 1)]
)
async def test_a_job_that_is_handed_back_uses_no_attempt(store, clock, outcome, returns, crashes):
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)
    clock.advance("1s")

    await finish(store, job, outcome)

    record = await read(store, "a")
    assert (record.state, record.attempts_made, record.worker) == (JobState.WAITING, 0, None)
    assert (record.returns, record.crashes, record.finished_at) == (returns, crashes, None)
    (job,) = await start(store)
    assert job.attempts_made == 1


@pytest.mark.parametrize("outcome", [Outcome.RETURNED, Outcome.RELEASED, Outcome.CRASHED])
async def test_a_job_that_is_handed_back_goes_to_its_old_place(store, outcome):
    await add(store, "a", "b", priority=5)
    (job,) = await start(store)
    await add(store, "c", priority=5)

    await finish(store, job, outcome)

    assert claimed(await claim(store, 3)) == ["a", "b", "c"]


@pytest.mark.parametrize("outcome", COMES_BACK)
async def test_the_start_of_a_job_that_comes_back_stays_charged(store, outcome):
    await declare(store, "all", Rate(2, per="1h"))
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)
    await finish(store, job, outcome)
    (job,) = await start(store)
    await finish(store, job, outcome)

    assert claimed(await claim(store)) == []


@pytest.mark.parametrize("outcome", [*FINAL, *COMES_BACK])
async def test_every_outcome_frees_the_slot_once(store, outcome):
    await declare(store, "all", Concurrency(2))
    await add(store, "a", "b", attempts=3)
    (job, _) = await start(store, 2)

    await finish(store, job, outcome)
    assert await store.finish([ending(job, outcome)]) == ["a"]

    assert (await usage(store, "all")).used == 1


async def test_many_ends_in_one_step_free_every_slot(store):
    await declare(store, "all", Concurrency(3))
    await add(store, "a", "b", "c", "d", "e", "f", "g")

    await complete(store, await start(store, 3))

    assert (await usage(store, "all")).used == 0
    assert len((await claim(store, 5)).jobs) == 3


async def test_a_job_that_crashed_three_times_fails(store, clock):
    await add(store, "a", attempts=5)
    for _ in range(2):
        (job,) = await start(store)
        await finish(store, job, Outcome.CRASHED, error="killed")
    (job,) = await start(store)
    clock.advance("1s")

    await finish(store, job, Outcome.CRASHED, error="killed")

    record = await read(store, "a")
    assert (record.state, record.crashes, record.finished_at) == (JobState.FAILED, 3, clock.now())
    assert "crashed" in record.error
    assert claimed(await claim(store)) == []


async def test_crashes_and_attempts_are_counted_apart(store):
    await add(store, "a", attempts=5)
    for outcome in (Outcome.CRASHED, Outcome.RETRY, Outcome.CRASHED, Outcome.RETURNED, Outcome.RELEASED, Outcome.RETRY):
        (job,) = await start(store)
        await finish(store, job, outcome)

    record = await read(store, "a")
    assert (record.state, record.attempts_made, record.crashes, record.returns) == (JobState.WAITING, 2, 2, 1)


# fences


@pytest.mark.parametrize("outcome", [*FINAL, *COMES_BACK])
async def test_whoever_lost_the_lease_changes_nothing(store, clock, outcome):
    await add(store, "a", attempts=5)
    (stale,) = await start(store, worker="zombie", lease="1m")
    clock.advance("1m")
    await start(store, worker="owner")
    before = await read(store, "a")

    lost = await store.finish([ending(stale, outcome, result=b"1", error="no", after="1h")])

    assert (lost, await read(store, "a")) == (["a"], before)


@pytest.mark.parametrize("outcome", [*FINAL, *COMES_BACK])
async def test_a_run_ends_once(store, outcome):
    job = await a_job_in(store, JobState.ACTIVE)
    await finish(store, job, result=b"1")
    before = await read(store, "a")

    lost = await store.finish([ending(job, outcome, result=b"2", error="no")])

    assert (lost, await read(store, "a")) == (["a"], before)


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.DELAYED, JobState.CANCELLED])
async def test_a_job_that_does_not_run_cannot_be_finished(store, state):
    before = await a_job_in(store, state)

    lost = await store.finish([ending(before, result=b"1")])

    assert (lost, await read(store, "a")) == (["a"], before)


@pytest.mark.parametrize("difference", [-1, 1])
async def test_another_fence_is_refused(store, difference):
    job = await a_job_in(store, JobState.ACTIVE)

    lost = await store.finish([Finish(id="a", fence=job.fence + difference, outcome=Outcome.COMPLETED)])

    assert (lost, await read(store, "a")) == (["a"], job)


@pytest.mark.parametrize("outcome", Outcome)
async def test_a_stale_fence_is_refused_for_every_outcome(store, clock, outcome):
    await add(store, "a", attempts=9)
    (zombie,) = await start(store, lease="5s")
    clock.advance("5s")
    (job,) = await start(store)

    assert await store.finish([ending(zombie, outcome)]) == ["a"]

    assert await read(store, "a") == job


async def test_an_unknown_job_is_lost(store):
    assert await store.finish([Finish(id="nobody", fence=1, outcome=Outcome.COMPLETED)]) == ["nobody"]


async def test_stale_finishes_do_not_stop_good_ones(store):
    await add(store, "a", "b")
    first, second = await start(store, 2)
    await finish(store, first)

    assert await store.finish([ending(first, Outcome.FAILED), ending(second)]) == ["a"]
    assert [job.state for job in await store.get(["a", "b"])] == ["completed", "completed"]


async def test_whoever_lost_the_lease_writes_no_note(store, clock):
    await add(store, "a")
    (stale,) = await start(store, worker="zombie", lease="1m")
    clock.advance("1m")
    (job,) = await start(store, worker="owner")

    assert await store.note([a_note(stale, progress=99, message="done", log="line"), a_note(job, progress=1)]) == ["a"]

    record = await read(store, "a")
    assert (record.progress, record.message, record.logs) == (1, None, ())


@pytest.mark.parametrize("how", ["removed", "obliterated", "not kept"])
async def test_a_fence_proves_nothing_for_a_new_job_of_the_same_id(store, clock, how):
    await add(store, "a", keep=0 if how == "not kept" else None)
    (stale,) = await start(store, worker="zombie", lease="1m")
    if how == "obliterated":
        await store.obliterate("line", True)
    else:
        clock.advance("1m")
        await claim(store, tasks=frozenset(["none of these"]))
        await store.move(["a"], Move.REMOVE if how == "removed" else Move.CANCEL)
    assert await store.get(["a"]) == []
    await add(store, "a")
    (job,) = await start(store, worker="owner")

    lost = await store.finish([ending(stale, result=b"1")])

    assert (lost, await read(store, "a")) == (["a"], job)


async def test_a_fence_of_an_earlier_life_proves_nothing_after_a_retry_by_hand(store):
    stale = await a_job_in(store, JobState.ACTIVE)
    await finish(store, stale, Outcome.FAILED)
    await store.move(["a"], Move.RETRY)
    (job,) = await start(store, worker="owner")

    assert await store.finish([ending(stale)]) == ["a"]
    assert await read(store, "a") == job


# cancelling what runs


@pytest.mark.parametrize("outcome", [*FINAL, *COMES_BACK])
async def test_a_job_whose_cancel_was_asked_ends_cancelled(store, clock, outcome):
    job = await a_job_in(store, JobState.ACTIVE, attempts=3)
    await store.move(["a"], Move.CANCEL)
    clock.advance("1s")

    await finish(store, job, outcome)

    record = await read(store, "a")
    assert (record.state, record.finished_at) == (JobState.CANCELLED, clock.now())
    assert claimed(await claim(store)) == []


async def test_a_running_job_learns_by_its_heartbeat_that_it_should_end(store):
    await add(store, "a", "b")
    jobs = await start(store, 2)
    await store.move(["a"], Move.CANCEL)

    extended = await store.extend("worker", [Lease(job.id, job.fence) for job in jobs], MINUTE)

    assert (extended.lost, extended.cancel) == ([], ["a"])
    assert (await read(store, "a")).cancel_asked is True


# keep


@pytest.mark.parametrize(("outcome", "state"), FINAL.items())
async def test_a_job_that_is_not_kept_is_gone_when_it_ends(store, outcome, state):
    job = await a_job_in(store, JobState.ACTIVE, keep=0)

    await finish(store, job, outcome)

    assert await store.get(["a"]) == []
    assert (await store.counts("line"))[state] == 0


async def test_a_job_that_is_not_kept_stays_while_it_comes_back(store):
    job = await a_job_in(store, JobState.ACTIVE, keep=0, attempts=3)

    await finish(store, job, Outcome.RETRY)

    assert await state_of(store, "a") == JobState.WAITING


@pytest.mark.parametrize("order", [1, -1], ids=["the old one first", "the new one first"])
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.RETRY], ids=str)
async def test_of_two_ends_of_one_job_the_one_whose_fence_is_current_counts(store, clock, outcome, order):
    await add(store, "a", "b")
    (old,) = await start(store, lease="10s")
    clock.advance("10s")
    (new, other) = await start(store, 2, worker="another")

    ends = [ending(old, result=b"1"), ending(new, outcome), ending(other)][::order]
    lost = await store.finish(ends)

    assert lost == ["a"]
    assert [await state_of(store, id) for id in ("a", "b")] == [
        JobState.COMPLETED if outcome is Outcome.COMPLETED else JobState.WAITING,
        JobState.COMPLETED,
    ]
