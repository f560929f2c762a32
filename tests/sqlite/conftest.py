"""One file per test, stores that are closed at its end, and the look of another program at that file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.stores import open_store

Opener = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A path that leaves room for the name of a socket beside the file, wherever tests run."""
    folder = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp" if os.path.isdir("/tmp") else None))
    yield folder / "jobs.db"
    shutil.rmtree(folder)


@pytest.fixture
async def opener(path: Path) -> AsyncIterator[Opener]:
    """`opener()`: one more store on the file of this test, closed at the end."""
    opened: list[Any] = []

    def one_more(where: Path | None = None, **options: Any) -> Any:
        opened.append(open_store(f"sqlite:///{where or path}", **{"durability": "normal"} | options))
        return opened[-1]

    yield one_more
    for store in opened:
        await store.close()


@pytest.fixture
async def store(opener: Opener) -> Any:
    store = opener()
    await store.open()
    return store


@pytest.fixture
def program(path: Path) -> Iterator[Callable[..., sqlite3.Connection]]:
    """`program()`: a connection to the file of this test as a program of the user has it."""
    opened: list[sqlite3.Connection] = []

    def connect(where: Path | None = None, **options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(where or path, check_same_thread=False, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def later(program: object) -> Iterator[Callable[[float, Callable[[], object]], None]]:
    """`later(0.4, call)`: call this in a while, in another thread, but before the test ends."""
    timers: list[threading.Timer] = []

    def start(seconds: float, call: Callable[[], object]) -> None:
        timers.append(threading.Timer(seconds, call))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()
