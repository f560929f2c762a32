"""What a worker says of how late its handlers begin is there for whoever looks."""

from __future__ import annotations

from paceline.stores.interface import Lag, WorkerRecord

LAGS = {"send": Lag(2_000, 31_000, 4), "täsk": Lag(0, 5, 0)}


async def test_lags_are_given_back_as_they_were_said(store):
    await store.register(WorkerRecord(id="one", queues=("line",), tasks=frozenset({"send"}), lags=LAGS))
    await store.register(WorkerRecord(id="two", queues=("line",)))

    assert [worker.lags for worker in await store.workers()] == [LAGS, {}]


async def test_what_was_said_last_counts_and_the_order_of_workers_stays(store):
    for name in ("one", "two"):
        await store.register(WorkerRecord(id=name, queues=("line",), lags=LAGS))

    newer = {"send": Lag(1, 2, 5)}
    await store.register(WorkerRecord(id="one", queues=("line",), lags=newer))

    assert [(worker.id, worker.lags) for worker in await store.workers()] == [("one", newer), ("two", LAGS)]
