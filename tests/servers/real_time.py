"""Fixtures: a store of each kind in real time, for what threads, event loops and processes do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from pathlib import Path

import pytest

from paceline.stores import open_store
from paceline.stores.interface import Store

from .fresh import empty_postgres
from .redis import empty_redis


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def opens(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Store]]:
    """Opens further handles on one empty store in real time, for other event loops and threads."""
    makers: dict[str, Callable[[], Callable[[], Store]]] = {
        "memory": lambda: cache(lambda: open_store("memory://")),
        "sqlite": lambda: lambda: open_store(f"sqlite:///{tmp_path / 'jobs.db'}?durability=normal"),
        "postgres": lambda: partial(open_store, empty_postgres(), migrate=False),
        "redis": lambda: partial(open_store, empty_redis()),
    }
    maker = makers[request.param]()
    opened: list[Store] = []

    def open_another() -> Store:
        opened.append(maker())
        return opened[-1]

    yield open_another
    for store in opened:
        await store.close()


@pytest.fixture
async def real_store(opens: Callable[[], Store]) -> Store:
    """An open store of each kind, in real time."""
    store = opens()
    await store.open()
    return store
