"""A client that stands still in the middle of its own claim is in nobody's way, however much it was given."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import Any

import psycopg

from paceline.job import NewJob
from paceline.stores.interface import Ask
from paceline.stores.postgres.arrays import Packed
from paceline.stores.postgres.store import PostgresStore
from paceline.stores.postgres.texts import CLAIM

MUCH = b"x" * 100_000
NUMBER = 60


def ask(worker: str, claim_id: str, slots: int = NUMBER) -> Ask:
    return Ask(queues=("line",), slots=slots, worker=worker, lease=60_000_000, claim_id=claim_id)


async def eventually(store: PostgresStore) -> None:
    """Until the claim that nobody reads is done."""
    while len(await store.starts("line", None)) < NUMBER:
        await asyncio.to_thread(time.sleep, 0.01)


async def test_a_claim_that_nobody_reads_holds_no_lock(store, url, monkeypatch):
    await store.insert([NewJob(f"{number}", "line", "work", data=MUCH) for number in range(NUMBER + 1)])
    asked: list[tuple[Any, ...]] = []
    rows = store.calls.rows

    async def keep(query: str, *values: Any, **how: Any) -> list[tuple[Any, ...]]:
        if query is CLAIM:
            asked.append(values)
            raise asyncio.CancelledError
        return await rows(query, *values, **how)

    monkeypatch.setattr(store.calls, "rows", keep)
    try:
        await store.claim(ask("stalled", "one"))
    except asyncio.CancelledError:
        monkeypatch.setattr(store.calls, "rows", rows)

    with contextlib.closing(psycopg.connect(url, autocommit=True)) as stalled:
        # Sent, and never read.
        text = re.sub(r"\$(\d+)", r"%(\1)s", store.calls.text(CLAIM))
        # It ends no runs: all that is packed is empty.
        values = {str(n): [] if isinstance(value, Packed) else value for n, value in enumerate(asked[0], 1)}
        stalled.pgconn.send_query(psycopg.ClientCursor(stalled).mogrify(text, values).encode())
        assert stalled.pgconn.flush() == 0
        async with asyncio.timeout(10):
            await eventually(store)

            claim = await store.claim(ask("other", "two"))

        assert [len(job.data) for job in claim.jobs] == [len(MUCH)]


async def test_a_claim_that_gives_much_gives_all_of_it(store):
    await store.insert([NewJob(f"{number}", "line", "work", data=MUCH) for number in range(NUMBER)])

    claim = await store.claim(ask("w", "one"))
    again = await store.claim(ask("w", "one"))

    assert [(job.id, len(job.data)) for job in claim.jobs] == [(f"{number}", len(MUCH)) for number in range(NUMBER)]
    assert [(job.id, job.fence, len(job.data)) for job in again.jobs] == [
        (job.id, job.fence, len(job.data)) for job in claim.jobs
    ]
