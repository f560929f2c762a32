"""The server did it, and nobody heard: what is asked again is given again, and nothing happens twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paceline import Job, Queue, Worker
from paceline.errors import StoreUnavailable
from paceline.job import JobState, NewJob
from paceline.limits import Concurrency, Limit, Rate
from paceline.stores.interface import Ask, Finish, Outcome
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import server


class Wire:
    """Between a client and the server; cuts the connection when the server answers what has a word in it."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self.cut: bytes | None = None
        self.cuts = 0
        self.ways: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_unix_connection(self._socket)
        armed = asyncio.Event()
        ways = [
            asyncio.create_task(self._ask(reader, here, armed)),
            asyncio.create_task(self._answer(there, writer, armed)),
        ]
        self.ways.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for end in (here, writer):
            end.close()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (here, writer):
            with contextlib.suppress(ConnectionError):
                await end.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, armed: asyncio.Event) -> None:
        while data := await reader.read(65536):
            if self.cut is not None and self.cut in data:
                self.cut = None
                armed.set()
            writer.write(data)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, armed: asyncio.Event) -> None:
        while data := await reader.read(65536):
            # An answer ends with the word that the server is ready again: what was asked is done and committed.
            if armed.is_set():
                if data.endswith(b"Z\x00\x00\x00\x05I"):
                    self.cuts += 1
                    return
                continue
            writer.write(data)


@pytest.fixture
async def wire(url: str, tmp_path: Path) -> AsyncIterator[Wire]:
    wire = Wire(str(server().folder / ".s.PGSQL.5432"))
    async with await asyncio.start_unix_server(wire.connected, tmp_path / ".s.PGSQL.5432"):
        yield wire
    await asyncio.gather(*wire.ways, return_exceptions=True)
    await asyncio.sleep(0)


@pytest.fixture
async def store(url: str, wire: Wire, tmp_path: Path) -> AsyncIterator[PostgresStore]:
    # Statements are sent as text every time, so that the wire can read them.
    store = PostgresStore(f"postgresql://postgres@/postgres?host={tmp_path}", pooler=True)
    await store.open()
    await store.set_limits([Limit("rate", Rate(100, per="1h")), Limit("slots", Concurrency(10))])
    await store.insert([NewJob(f"job-{number}", "line", "work") for number in range(4)])
    yield store
    await store.close()


def ask(claim_id: str) -> Ask:
    return Ask(queues=("line",), slots=2, worker="w", lease=60_000_000, claim_id=claim_id)


def completed(jobs) -> list[Finish]:
    return [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in jobs]


async def test_a_claim_whose_answer_is_lost_gives_the_same_jobs_and_charges_them_once(store, wire):
    first = (await store.claim(ask("one"))).jobs
    wire.cut = b".claim_jobs("

    second = await store.claim(ask("two"), completed(first))

    assert wire.cuts == 1
    assert [job.id for job in second.jobs] == ["job-2", "job-3"]
    assert second.lost == []
    assert [start.job_id for start in await store.starts("line", None)] == [f"job-{number}" for number in range(4)]
    assert [(await store.usage(limit, None)).used for limit in ("rate", "slots")] == [4, 2]
    assert await store.counts("line") | {"completed": 2, "active": 2} == await store.counts("line")


async def test_a_finish_whose_answer_is_lost_happened_once(store, wire):
    jobs = (await store.claim(ask("one"))).jobs
    wire.cut = b".finish("

    with pytest.raises(StoreUnavailable):
        await store.finish(completed(jobs))

    assert wire.cuts == 1
    assert await store.finish(completed(jobs)) == [job.id for job in jobs]
    found = await store.get([job.id for job in jobs])
    assert [(job.state, job.attempts_made) for job in found] == [(JobState.COMPLETED, 1)] * 2
    assert [job.id for job in (await store.claim(ask("two"))).jobs] == ["job-2", "job-3"]


@pytest.mark.parametrize(
    ("word", "options"),
    [
        (b"with came as", {"fresh": True}),
        (b".insert_jobs(", {}),
        (b".insert_jobs(", {"unique": "key"}),
    ],
)
async def test_an_insert_whose_answer_is_lost_adds_the_job_once(store, wire, word, options):
    wire.cut = word

    (added,) = await store.insert([NewJob("new", "line", "work", **options)])

    assert wire.cuts == 1
    assert added.job.id == "new"
    assert (await store.counts("line"))["waiting"] == 5


async def test_a_worker_runs_every_job_once_however_many_answers_are_lost(store, wire):
    queue = Queue("line", store=store)
    ran: list[str] = []

    async def handler(job: Job[None]) -> None:
        ran.append(job.id)
        if len(ran) % 5 == 0:
            wire.cut = b".claim_jobs(" if len(ran) % 10 else b".finish("

    await queue.add_many(("work", None, {"job_id": f"more-{number}"}) for number in range(40))
    async with asyncio.timeout(30):
        await Worker("line", handler, store=store, concurrency=3).run(until_empty=True)
    assert wire.cuts >= 3
    assert sorted(ran) == sorted([f"job-{n}" for n in range(4)] + [f"more-{n}" for n in range(40)])
    assert len(await queue.starts()) == 44
