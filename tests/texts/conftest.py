"""The stores under test, each on its own real clock. Every test that takes `store` runs on all four."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paceline import open_store
from paceline.stores.interface import Store

from ..servers.files import new_file
from ..servers.fresh import fresh_postgres
from ..servers.redis import empty_redis

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: open_store("memory://texts"),
    "sqlite": lambda folder: open_store(f"sqlite:///{new_file(folder / 'jobs.db')}?durability=normal"),
    "postgres": lambda folder: fresh_postgres(None)("default"),
    "redis": lambda folder: open_store(empty_redis()),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path)
    await store.open()
    yield store
    await store.close()
