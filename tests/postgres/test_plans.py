"""A claim looks at nothing but what it needs: no table is read from one end to the other, however large."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from paceline.errors import MissingExtra
from paceline.job import Move, NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Begun, Finish, Lease, Outcome

LARGE = ("job", "wait", "delayed", "lease", "done", "past", "arrival", "lane", "grp", "meter", "spent", "start", "uniq")


def scans(sql: Any) -> dict[str, int]:
    """How often each large table was read from one end to the other."""
    sql.execute("select pg_stat_force_next_flush()")
    rows = sql.execute(
        "select relname, seq_scan from pg_stat_user_tables where schemaname = 'paceline' and relname = any(%s)",
        (list(LARGE),),
    )
    return dict(rows.fetchall())


@pytest.mark.parametrize("limited", [False, True], ids=["without limits", "with limits"])
async def test_the_life_of_jobs_reads_no_table_as_a_whole(store, sql, limited):
    if limited:
        limits = [Limit("all", Rate(50, per="1s") & Concurrency(20)), Limit("tenant", Rate(2, per="1s"), by="group")]
        await store.set_limits(limits)
    before = scans(sql)
    finishes: list[Finish] = []
    for number in range(12):
        await store.insert(
            [
                NewJob(f"{number}-{n}", "line", "work", group=f"g{n % 7}", delay=0 if n % 5 else 50_000)
                for n in range(40)
            ]
        )
        await store.insert([NewJob(f"{number}-u", "line", "work", unique="key", cost=2, group_max_size=999, group="x")])
        claim = await store.claim(
            Ask(queues=("line",), slots=9, worker="w", lease=60_000_000, claim_id=f"{number}"), finishes
        )
        late = [Lease(job.id, job.fence) for job in claim.jobs[:5]]
        refused = (await store.decide_again(late)).refused
        await store.begun([Begun(each.id, each.fence) for each in late[:3]])
        ends = [Outcome.COMPLETED, Outcome.RETRY, Outcome.FAILED]
        finishes = [
            Finish(id=job.id, fence=job.fence, outcome=ends[place % 3])
            for place, job in enumerate(claim.jobs)
            if job.id not in refused
        ]
    await store.finish(finishes)
    await store.get(["0-1"])
    await store.move(["11-0"], Move.CANCEL)

    await store.close()
    time.sleep(0.2)
    assert {name: n - before.get(name, 0) for name, n in scans(sql).items() if n > before.get(name, 0)} == {}


def test_without_psycopg_the_error_has_the_install_command(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg" or ".stores.postgres" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtra, match="pip install 'paceline"):
        open_store("postgresql://somewhere/jobs")
