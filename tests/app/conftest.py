"""An app in virtual time, and the log of starts as seconds since the test began."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest

from paceline import App
from paceline.testing import VirtualTime

from ..servers.fresh import empty_postgres
from ..servers.redis import empty_redis

URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: f"memory://{uuid4().hex}",
    "sqlite": lambda folder: f"sqlite:///{folder / 'jobs.db'}?durability=normal",
    # A URL of its own for each test: one URL is one store for the whole process.
    "postgres": lambda folder: f"{empty_postgres()}&application_name={uuid4().hex}",
    "redis": lambda folder: empty_redis(),
}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every store in real time, empty, as a program names it."""
    return URLS[request.param](tmp_path)


class Timeline:
    """Instants as seconds since the test began."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.began = time.now()

    def at(self, when: datetime | None) -> float | None:
        return None if when is None else (when - self.began).total_seconds()

    def starts(self, task: str | None = None) -> list[float]:
        return [(start.at - self.began).total_seconds() for start in self.time.starts(task)]

    @property
    def now(self) -> float:
        return (self.time.now() - self.began).total_seconds()


@pytest.fixture
def timeline(paceline_time: VirtualTime) -> Timeline:
    return Timeline(paceline_time)


@pytest.fixture
def app(paceline_time: VirtualTime) -> App:
    return App(paceline_time.store)
