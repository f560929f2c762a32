"""A file that an earlier release wrote is opened, upgraded in place and continued, as if nothing had happened."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from paceline.clock import NEVER
from paceline.errors import SchemaMismatch, StoreError
from paceline.job import JobState
from paceline.stores import open_store
from paceline.stores.interface import Ask, Filter, Finish, Outcome
from paceline.stores.sqlite import schema

from ..clocks import HandClock
from .earlier.history import HOUR, SECOND, earlier

KEPT = Path(__file__).parent / "earlier" / "format_3.db.gz"
QUEUES = ("line", "other", "closed")


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    path.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return path


@pytest.fixture
async def both(old_file: Path) -> Any:
    """The file, and the memory store after the same history, by one clock."""
    clock = HandClock()
    memory = open_store("memory://", clock=clock)
    await earlier(memory, clock)
    file = open_store(f"sqlite:///{old_file}", clock=clock)
    yield file, memory, clock
    await file.close()


async def seen(store: Any) -> dict[str, Any]:
    """Everything that can be read."""
    jobs = {name: await store.find(Filter(queue=name)) for name in QUEUES}
    limits = sorted(await store.limits(), key=lambda limit: limit.name)
    return {
        "jobs": jobs,
        "counts": {name: await store.counts(name) for name in QUEUES},
        "queues": await store.queues(),
        "limits": limits,
        "overrides": await store.overrides(),
        "usage": [await store.usage("api", None), *[await store.usage("each", group) for group in "abcd"]],
        "held": await store.usage("held", "h"),
        "starts": {name: await store.starts(name, None) for name in QUEUES},
        "standing": [await store.standing(job.id) for found in jobs.values() for job in found],
        "workers": await store.workers(),
    }


async def test_everything_in_a_file_of_the_earlier_release_is_read_as_it_was_written(both):
    file, memory, _ = both

    assert await seen(file) == await seen(memory)


async def test_a_file_of_the_earlier_release_is_drained_as_memory_is(both):
    file, memory, clock = both
    ends: list[Finish] = []
    started: list[str] = []
    for number in range(200):
        ask = Ask(queues=QUEUES, slots=3, worker="w9", lease=30 * SECOND, claim_id=f"c{number}")
        one, two = [await store.claim(ask, ends) for store in (file, memory)]
        assert one == two, f"claim {number}, after {started}"
        started += [job.id for job in one.jobs]
        ends = [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in one.jobs]
        if number == 20:
            for store in (file, memory):
                await store.give_back(["permit", "waits"])
                await store.pause("line", "paused", None, False)
                await store.pause("line", None, "d", False)
                await store.pause("closed", None, None, False)
        clock.at += SECOND if one.ask_again_at >= NEVER else max(one.ask_again_at - clock.at, 0) % HOUR or SECOND // 10
    assert await seen(file) == await seen(memory)
    assert [(await file.counts(name))[JobState.WAITING] for name in QUEUES] == [0, 0, 0]
    assert "big" in started and "u1" in started and "d3" in started


async def test_an_upgraded_file_says_so_and_is_not_changed_by_a_program_of_the_earlier_release(both, old_file):
    file, _, _ = both
    await file.counts("line")
    with sqlite3.connect(old_file) as db:
        assert db.execute("SELECT version FROM paceline_file").fetchone() == (schema.VERSION,)
        # The first statement of every transaction of that release.
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            db.execute("SELECT s.id, s.version, s.rules_version, s.ears_version, s.news FROM paceline_space s")
    db.close()


async def test_a_program_that_runs_while_a_newer_release_upgrades_its_file_stops_writing(both, old_file):
    file, _, _ = both
    await file.counts("line")
    with sqlite3.connect(old_file) as db:
        db.execute("UPDATE paceline_file SET version = version + 1")
    db.close()

    for call in (file.claim(Ask(queues=("line",), slots=1, worker="w", lease=SECOND)), file.counts("line")):
        with pytest.raises(SchemaMismatch, match="newer Paceline"):
            await call


async def test_a_read_cannot_write(both):
    file, _, _ = both

    def writes(unit: Any) -> None:
        unit.db.execute("UPDATE paceline_file SET ids = 0")

    with pytest.raises(StoreError, match="cannot be written"):
        await file._read(writes)
    assert (await file.counts("line"))[JobState.WAITING] > 0
