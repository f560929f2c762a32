"""A handler that succeeded is never called again because of what it returned."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

from paceline import App, JobFailed, Queue, Worker, open_store

UNSTORABLE = {
    "no JSON": Path("/receipts/1.pdf"),
    "NaN": [math.nan],
    "surrogate": {"name": "\udcff"},
    "too large": "x" * 1_100_000,
}


@pytest.mark.parametrize("plain", [False, True], ids=["loop", "thread"])
async def test_a_run_whose_result_cannot_be_stored_ends_the_job_at_once(store, plain):
    app = App(store)
    calls: list[str] = []

    def charge(what: str) -> Any:
        calls.append(what)
        return UNSTORABLE[what]

    async def charge_async(what: str) -> Any:
        return charge(what)

    task = app.task(name="charge", attempts=3)(charge if plain else charge_async)
    jobs = [await task.enqueue(what) for what in UNSTORABLE]
    await app.worker().run(until_empty=True)

    assert sorted(calls) == sorted(UNSTORABLE)
    for job in jobs:
        await job.refresh()
        assert (job.state, job.attempts_made, job.result_value) == ("failed", 1, None)
        assert "the handler succeeded and is not called again" in job.error
        with pytest.raises(JobFailed, match=r"(NotSerializable|PayloadTooLarge): .*result"):
            await job.result()


async def test_of_a_batch_only_the_job_whose_result_cannot_be_stored_fails(store):
    queue = Queue("line", store=store)
    calls: list[int] = []

    async def handler(jobs: list[Any]) -> list[Any]:
        calls.append(len(jobs))
        return [UNSTORABLE["no JSON"] if job.data == 1 else job.data for job in jobs]

    jobs = await queue.add_many([("work", number, {"attempts": 3}) for number in range(3)])
    await Worker("line", handler, store=store, batch=3).run(until_empty=True)

    assert [str((await job.refresh()).state) for job in jobs] == ["completed", "failed", "completed"]
    assert calls == [3]


async def test_the_result_of_a_process_that_cannot_be_stored_ends_the_job_at_once(store, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    handlers = importlib.import_module("misbehaving")
    queue = Queue("line", store=store)
    kinds = [("result", "surrogate"), ("result", "huge"), ("strange result", "nul")]

    jobs = [await queue.add("work", kind, attempts=3) for kind in kinds]
    await Worker("line", handlers.misbehave_plainly, store=store, isolation="process").run(until_empty=True)

    for job in jobs:
        await job.refresh()
        assert (job.state, job.attempts_made) == ("failed", 1)
        assert "the handler succeeded and is not called again" in job.error


async def test_the_maximum_of_the_store_counts_for_results_too():
    store = open_store("memory://", max_payload=2_000_000)
    queue = Queue("line", store=store)

    async def handler(job: Any) -> str:
        return "x" * job.data

    small, large = await queue.add_many([("work", 1_500_000), ("work", 2_500_000)])
    await Worker("line", handler, store=store).run(until_empty=True)

    assert len(await small.result()) == 1_500_000
    with pytest.raises(JobFailed, match="the job's result is 2500002 bytes as JSON and the maximum is 2000000"):
        await large.result()
