"""An app in virtual time, and the log of starts as seconds since the test began."""

from __future__ import annotations

from datetime import datetime

import pytest

from paceline import App
from paceline.testing import VirtualTime

from ..servers.real_time import opens as opens
from ..servers.real_time import real_store as real_store


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
