"""What people do to single jobs: cancel, promote, retry, remove. All of them or none."""

from __future__ import annotations

import pytest

from paceline.errors import JobNotFound, MoveNotAllowed
from paceline.job import JobState, Move
from paceline.stores.interface import Outcome

from .builders import a_job_in, a_note, add, claim, claimed, finish, read, start, state_of

WAITING, DELAYED, ACTIVE = JobState.WAITING, JobState.DELAYED, JobState.ACTIVE
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED

ALLOWED = {
    Move.CANCEL: {WAITING, DELAYED, ACTIVE},
    Move.PROMOTE: {DELAYED},
    Move.RETRY: {COMPLETED, FAILED, CANCELLED},
    Move.REMOVE: {WAITING, DELAYED, COMPLETED, FAILED, CANCELLED},
}
STATES = [WAITING, DELAYED, ACTIVE, COMPLETED, FAILED, CANCELLED]
FORBIDDEN = [(move, state) for move in Move for state in STATES if state not in ALLOWED[move]]


@pytest.mark.parametrize(("move", "state"), FORBIDDEN)
async def test_a_move_that_the_state_does_not_allow_is_refused_and_changes_nothing(store, move, state):
    before = await a_job_in(store, state)

    with pytest.raises(MoveNotAllowed) as refused:
        await store.move(["a"], move)

    assert (refused.value.job_id, refused.value.state, refused.value.wanted) == ("a", state, move)
    assert await read(store, "a") == before


@pytest.mark.parametrize("move", Move)
async def test_a_job_that_does_not_exist_cannot_be_moved(store, move):
    with pytest.raises(JobNotFound) as refused:
        await store.move(["nobody"], move)

    assert refused.value.job_id == "nobody"


@pytest.mark.parametrize("move", Move)
async def test_no_job_moves_when_one_does_not_exist(store, move):
    before = await a_job_in(store, min(ALLOWED[move]))

    with pytest.raises(JobNotFound):
        await store.move(["a", "nobody"], move)

    assert await read(store, "a") == before


@pytest.mark.parametrize(("move", "state"), FORBIDDEN)
async def test_no_job_moves_when_one_is_not_allowed_to(store, move, state):
    good = await a_job_in(store, min(ALLOWED[move]), "good", queue="other")
    await a_job_in(store, state, "bad")

    with pytest.raises(MoveNotAllowed):
        await store.move(["good", "bad"], move)

    assert await read(store, "good") == good


@pytest.mark.parametrize("move", Move)
async def test_many_jobs_move_together(store, move):
    state = min(ALLOWED[move])
    for id in ("a", "b", "c"):
        await a_job_in(store, state, id, queue=f"queue of {id}")
    before = await store.get(["a", "b"])

    await store.move(["a", "b"], move)

    assert [old for old in before if old in await store.get(["a", "b"])] == []
    assert await state_of(store, "c") == state


async def test_a_job_that_is_named_twice_moves_once(store):
    await a_job_in(store, DELAYED)

    await store.move(["a", "a"], Move.PROMOTE)

    assert claimed(await claim(store, 5)) == ["a"]


async def test_moving_nothing_does_nothing(store):
    before = await a_job_in(store, WAITING)

    await store.move([], Move.CANCEL)

    assert await read(store, "a") == before


# cancel


@pytest.mark.parametrize("state", [WAITING, DELAYED])
async def test_a_job_that_has_not_started_is_cancelled_at_once(store, clock, state):
    await a_job_in(store, state)
    clock.advance("1s")

    await store.move(["a"], Move.CANCEL)

    record = await read(store, "a")
    assert (record.state, record.finished_at) == (CANCELLED, clock.now())
    clock.advance("2h")
    assert claimed(await claim(store)) == []


async def test_a_running_job_is_told_to_end_and_runs_on(store):
    job = await a_job_in(store, ACTIVE)

    await store.move(["a"], Move.CANCEL)

    record = await read(store, "a")
    assert (record.state, record.cancel_asked, record.fence) == (ACTIVE, True, job.fence)


async def test_a_cancelled_job_that_is_not_kept_is_gone(store):
    await add(store, "a", keep=0)

    await store.move(["a"], Move.CANCEL)

    assert await store.get(["a"]) == []


# promote


async def test_a_promoted_job_is_due_now(store, clock):
    await a_job_in(store, DELAYED)
    clock.advance("1s")

    await store.move(["a"], Move.PROMOTE)

    record = await read(store, "a")
    assert (record.state, record.due_at) == (WAITING, clock.now())
    assert claimed(await claim(store)) == ["a"]


async def test_a_promoted_job_takes_its_own_place(store):
    await a_job_in(store, DELAYED, "a")
    await add(store, "b")

    await store.move(["a"], Move.PROMOTE)

    assert claimed(await claim(store, 2)) == ["a", "b"]


async def test_a_promoted_job_starts_once(store, clock):
    await a_job_in(store, DELAYED)
    await store.move(["a"], Move.PROMOTE)
    await start(store)

    clock.advance("2h")

    assert claimed(await claim(store)) == []


async def test_a_retry_that_waits_for_its_time_may_be_promoted(store):
    job = await a_job_in(store, ACTIVE, attempts=2)
    await finish(store, job, Outcome.RETRY, after="1h")

    await store.move(["a"], Move.PROMOTE)

    (job,) = await start(store)
    assert job.attempts_made == 2


async def test_a_job_whose_delay_is_over_has_nothing_to_promote(store, clock):
    await a_job_in(store, DELAYED)
    clock.advance("1h")

    with pytest.raises(MoveNotAllowed) as refused:
        await store.move(["a"], Move.PROMOTE)

    assert refused.value.state == WAITING


# retry


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELLED])
async def test_a_finished_job_that_is_retried_starts_over(store, clock, state):
    await a_job_in(store, state, data=b"7", attempts=3)
    clock.advance("1m")

    await store.move(["a"], Move.RETRY)

    record = await read(store, "a")
    assert (record.state, record.due_at, record.attempts, record.data) == (WAITING, clock.now(), 3, b"7")
    assert (record.attempts_made, record.crashes, record.returns) == (0, 0, 0)
    assert (record.result, record.error, record.progress, record.message) == (None, None, 0, None)
    assert (record.started_at, record.finished_at, record.cancel_asked) == (None, None, False)
    (job,) = await start(store)
    assert (job.id, job.attempts_made) == ("a", 1)


async def test_a_retry_by_hand_forgets_crashes_returns_and_progress(store):
    await add(store, "a", attempts=9)
    for outcome in (Outcome.CRASHED, Outcome.RETURNED, Outcome.RETRY, Outcome.FAILED):
        (job,) = await start(store)
        await store.note([a_note(job, progress=50, message="half")])
        await finish(store, job, outcome)

    await store.move(["a"], Move.RETRY)

    record = await read(store, "a")
    assert (record.crashes, record.returns, record.attempts_made) == (0, 0, 0)
    assert (record.progress, record.message) == (0, None)


async def test_a_job_that_was_cancelled_while_it_ran_is_not_cancelled_again_after_a_retry(store):
    job = await a_job_in(store, ACTIVE)
    await store.move(["a"], Move.CANCEL)
    await finish(store, job)
    await store.move(["a"], Move.RETRY)

    (job,) = await start(store)
    await finish(store, job)

    assert await state_of(store, "a") == COMPLETED


# remove


@pytest.mark.parametrize("state", sorted(ALLOWED[Move.REMOVE]))
async def test_a_removed_job_is_gone(store, clock, state):
    await a_job_in(store, state)

    await store.move(["a"], Move.REMOVE)

    assert await store.get(["a"]) == []
    assert set((await store.counts("line")).values()) == {0}
    clock.advance("2h")
    assert claimed(await claim(store)) == []


@pytest.mark.parametrize("state", sorted(ALLOWED[Move.REMOVE]))
async def test_the_id_of_a_removed_job_may_be_used_again(store, state):
    await a_job_in(store, state)
    await store.move(["a"], Move.REMOVE)

    await add(store, "a", data=b"new")

    (job,) = await start(store)
    assert (job.id, job.data, job.attempts_made) == ("a", b"new", 1)


async def test_removing_the_next_job_lets_the_one_behind_it_go(store):
    await add(store, "a", "b", group="acme")

    await store.move(["a"], Move.REMOVE)

    assert claimed(await claim(store, 2)) == ["b"]
