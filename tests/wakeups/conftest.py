"""Each store with a sleeper in this process and somebody else in another one; polls are put off.

What a poll would find within a second or less is found by nobody here: whoever reacts was woken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from paceline.stores import open_store
from paceline.stores.postgres import listening
from paceline.stores.postgres import store as postgres
from paceline.stores.postgres.store import PostgresStore
from paceline.stores.sqlite import listening as sqlite_listening

from ..servers.fresh import server
from ..servers.redis import shared_redis
from .others import OtherProcess, OtherThread, Process
from .sleepers import Stage

FAR = 20
"""Seconds until the first poll. A worker's insurance comes after 30, a heartbeat after 10."""

SHARED: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'jobs.db'}?durability=normal",
    "postgres": lambda folder: server().url(),
    "redis": lambda folder: shared_redis().url,
}
"""Stores that processes share: a function of a folder that gives a URL which any process can open."""


@pytest.fixture(autouse=True)
def polls_are_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_listening, "POLL_EVERY", FAR)
    monkeypatch.setattr(listening, "LOOK_EVERY", FAR)
    monkeypatch.setattr(postgres, "POLL", FAR * 1_000_000)


@pytest.fixture(scope="session")
def process() -> Iterator[Process]:
    """The process that acts in all tests, one store after the other."""
    process = Process()
    yield process
    process.kill()


@pytest.fixture
async def stage_at(process: Process) -> AsyncIterator[Callable[[str], Stage]]:
    """`stage_at(url)`: a namespace where nobody has ever been, and a process that acts in it."""
    stages: list[Stage] = []

    def make(url: str) -> Stage:
        namespace = f"wakes-{uuid4().hex[:12]}"
        stage = Stage(open_store(url, namespace=namespace), OtherProcess(process, url, namespace))
        if isinstance(stage.store, PostgresStore):
            # It notices that nobody sleeps, and later that it has been so for a while.
            stage.busy_after = listening.AWAKE_FOR + 2 * listening.PATIENCE + 0.1
        stages.append(stage)
        return stages[-1]

    yield make
    for stage in stages:
        await stage.other.does("close")
        await stage.store.close()


@pytest.fixture(params=["memory", *SHARED])
def kind(request: pytest.FixtureRequest) -> str:
    """The store under test; memory lives in one process, where somebody else is another thread."""
    return str(request.param)


@pytest.fixture
async def stage(kind: str, tmp_path: Path, stage_at: Callable[[str], Stage]) -> AsyncIterator[Stage]:
    if kind != "memory":
        stage = stage_at(SHARED[kind](tmp_path))
        await stage.store.open()
        yield stage
        return
    store = open_store("memory://")
    thread = OtherThread(store)
    yield Stage(store, thread)
    thread.close()
    await store.close()
