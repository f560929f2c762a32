"""Who waits for the end of a job while the end is being written."""

from __future__ import annotations

import asyncio
from time import monotonic

import psycopg

from paceline.job import JobState, NewJob
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres import within
from paceline.stores.postgres.rows import finish_columns
from paceline.stores.postgres.texts import FINISH


async def test_an_end_that_is_not_committed_yet_is_waited_for(store, sql):
    await store.insert([NewJob("a", "line", "work")])
    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=60_000_000, claim_id="1"))
    end = Finish(id="a", fence=claim.jobs[0].fence, outcome=Outcome.COMPLETED)
    with psycopg.connect(sql.info.dsn) as other:
        await within.fetch(
            other, store.calls.text(FINISH), (await store.space(), None, *finish_columns([end], 0), False)
        )
        # It saw nobody who waits, so nobody is told.
        waiting = asyncio.create_task(store.finished("a", 5_000_000))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        begin = monotonic()
        other.commit()
        found = await waiting

    assert found.state is JobState.COMPLETED
    assert monotonic() - begin < 0.5
