"""The stores under test and the processes of one test. Every race runs on every store that processes can share.

A further store is one line in `STORES`: a function of a folder that gives a URL which any process can open.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from paceline import App

from ..servers.fresh import server
from ..servers.redis import RedisServer
from .crew import Crew, Place
from .program import make_app


@cache
def lasting_redis() -> RedisServer:
    """A server that keeps a log: nobody has to be warned."""
    server = RedisServer("--appendonly", "yes")
    server.start()
    atexit.register(server.remove)
    return server


STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'jobs.db'}",
    "postgres": lambda folder: server().url(),
    "redis": lambda folder: lasting_redis().url,
}


@pytest.fixture(params=STORES)
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """`new_place()`: somewhere nobody has ever been, on the store under test."""

    def make() -> Place:
        name = uuid4().hex[:12]
        folder = tmp_path / name
        folder.mkdir()
        return Place(STORES[request.param](folder), f"race-{name}")

    return make


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    return new_place()


@pytest.fixture
def alone() -> bool:
    """Whether a test measures time: no other race of this user runs beside it then."""
    return False


@pytest.fixture
def crew(place: Place, tmp_path: Path, alone: bool) -> Iterator[Crew]:
    """The processes of this test; none is left when it ends."""
    lock = Path(tempfile.gettempdir()) / f"paceline-races-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        crew = Crew(place, tmp_path)
        yield crew
        crew.close()


@pytest.fixture
async def app(place: Place) -> AsyncIterator[App]:
    """The app as the test itself sees it: it adds and looks, and runs no worker."""
    async with make_app(place.url, place.namespace) as app:
        yield app
