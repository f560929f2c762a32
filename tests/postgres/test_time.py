"""Whose clock decides: the server's, whatever the clock of this machine says."""

from __future__ import annotations

import time

import pytest

from paceline.job import NewJob
from paceline.stores import open_store
from paceline.stores.interface import Ask

HOUR = 3600 * 10**9


@pytest.mark.parametrize("wrong_by", [-HOUR, HOUR], ids=["behind", "ahead"])
async def test_a_worker_whose_clock_is_wrong_by_an_hour_follows_the_server(url, sql, monkeypatch, wrong_by):
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + wrong_by)
    store = open_store(url)
    await store.insert([NewJob("a", "line", "work")])

    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000))

    (now,) = sql.execute("select paceline.clock_us()").fetchone()
    assert abs(claim.jobs[0].started_at - now) < 5_000_000
    assert abs(store.clock.now() - now) < 5_000_000
    await store.close()


async def test_the_clock_of_a_store_is_never_ahead_of_the_server(store, sql):
    for number in range(20):
        await store.insert([NewJob(f"{number}", "line", "work")])

        here = store.clock.now()
        (there,) = sql.execute("select paceline.clock_us()").fetchone()

        assert here <= there


async def test_time_stands_still_rather_than_go_back(store, sql):
    await store.insert([NewJob("a", "line", "work"), NewJob("b", "line", "work")])
    sql.execute("update paceline.queue_state set seen_at = paceline.clock_us() + 3600000000")

    claim = await store.claim(Ask(queues=("line",), slots=1, worker="w", lease=1_000_000))

    (seen,) = sql.execute("select seen_at from paceline.queue_state").fetchone()
    assert claim.now == claim.jobs[0].started_at == seen
