"""An end that PostgreSQL refuses for what it says fails its own job, and stops or loses no other."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import Job, Queue, Worker
from paceline.errors import StoreError, StoreUnavailable
from paceline.job import JobRecord, JobState, NewJob
from paceline.limits import Concurrency, Limit
from paceline.stores.interface import Ask, Finish, Outcome

REFUSED: dict[str, dict[str, Any]] = {
    "a NUL": {"outcome": Outcome.FAILED, "error": "a\0b"},
    "a lone surrogate": {"outcome": Outcome.FAILED, "error": "a\ud800b"},
    "a number that is too large": {"outcome": Outcome.RETRY, "after": 2**80},
    "a time after the end of time": {"outcome": Outcome.RETRY, "after": 2**63 - 1},
}


def ask() -> Ask:
    return Ask(queues=("line",), slots=9, worker="worker", lease=60_000_000)


def end(job: JobRecord, **changes: Any) -> Finish:
    return Finish(id=job.id, fence=job.fence, **({"outcome": Outcome.COMPLETED, "result": b"1"} | changes))


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("along", [True, False], ids=["with a claim", "alone"])
@pytest.mark.parametrize("number", [1, 3])
async def test_an_end_that_cannot_be_stored_fails_its_job_alone(store, caplog, refused, along, number):
    await store.set_limits([Limit("slots", Concurrency(3))])
    await store.insert([NewJob(f"{place}", "line", "work") for place in range(4)])
    jobs = (await store.claim(ask())).jobs[:number]
    bad = jobs[-1]
    ends = [end(job) for job in jobs[:-1]] + [end(bad, **({"result": None} | refused))]

    if along:
        answer = await store.claim(ask(), ends)
        assert (answer.jobs, answer.lost, answer.ask_again_at) == ([], [], answer.now)
    else:
        assert await store.finish(ends) == []

    states = {record.id: record.state for record in await store.get([job.id for job in jobs])}
    assert states == {job.id: JobState.COMPLETED for job in jobs[:-1]} | {bad.id: JobState.FAILED}
    (record,) = await store.get([bad.id])
    assert "could not be stored" in (record.error or "")
    assert f"job {bad.id} failed" in caplog.text
    assert [job.id for job in (await store.claim(ask())).jobs] == ["3"]  # its slot is free


async def test_a_server_that_refuses_everything_fails_no_job(store, monkeypatch):
    await store.insert([NewJob("a", "line", "work")])
    (job,) = (await store.claim(ask())).jobs
    rows = store.calls.rows

    async def refuse(query: str, *values: Any, **how: Any) -> Any:
        raise StoreError("the database role may not do this")

    monkeypatch.setattr(store.calls, "rows", refuse)
    with pytest.raises(StoreError, match="may not"):
        await store.claim(ask(), [end(job)])
    monkeypatch.setattr(store.calls, "rows", rows)

    assert (await store.claim(ask(), [end(job)])).lost == []


async def test_a_server_that_is_away_is_no_refusal(store, monkeypatch):
    await store.insert([NewJob("a", "line", "work")])
    (job,) = (await store.claim(ask())).jobs
    asked = []

    async def away(query: str, *values: Any, **how: Any) -> Any:
        asked.append(query)
        raise StoreUnavailable("PostgreSQL cannot be reached")

    monkeypatch.setattr(store.calls, "rows", away)
    with pytest.raises(StoreUnavailable):
        await store.finish([end(job)])
    assert len(asked) == 1


async def test_a_worker_goes_on_after_an_end_that_cannot_be_stored(store, monkeypatch):
    """Whatever a later handler may produce that nobody thought of."""
    write = store._finish

    async def picky(finishes: Any) -> list[str]:
        if any(finish.result == b'"odd"' for finish in finishes):
            raise StoreError("PostgreSQL refused: something")
        found: list[str] = await write(finishes)
        return found

    async def claim_picky(ask: Ask, finishes: Any) -> Any:
        if any(finish.result == b'"odd"' for finish in finishes):
            raise StoreError("PostgreSQL refused: something")
        return await claim(ask, finishes)

    claim = store._claim
    monkeypatch.setattr(store, "_finish", picky)
    monkeypatch.setattr(store, "_claim", claim_picky)
    queue = Queue("line", store=store)

    async def handle(job: Job[str]) -> str:
        return job.data

    async with Worker("line", handle, store=store, concurrency=3):
        jobs = [await queue.add("work", word) for word in ("odd", "even", "plain")]
        states = [(await store.finished(job.id, 10_000_000)).state for job in jobs]

    assert states == [JobState.FAILED, JobState.COMPLETED, JobState.COMPLETED]
