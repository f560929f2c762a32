"""A real server and an empty schema for tests that are about PostgreSQL itself, on the server's own clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paceline.stores import open_store
from paceline.stores.postgres.store import PostgresStore

from ..servers.fresh import database, server, wipe_text
from ..servers.postgres import Server
from .releases import make_next_release, wipe


@pytest.fixture
def url() -> str:
    """The shared server, with our schema in it and nothing else."""
    database().execute(wipe_text())
    return server().url()


@pytest.fixture
def sql(url: str) -> psycopg.Connection[Any]:
    return database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def stranger() -> AsyncIterator[Callable[[str], PostgresStore]]:
    """`stranger(url)`: a store as another process has it. Handles of one process share who sleeps, and wake each other
    without the server; what this one does reaches a sleeper through the notifications of the server only.
    """
    stores: list[PostgresStore] = []

    def make(url: str) -> PostgresStore:
        store = PostgresStore(url, application_name="stranger")
        store.ears = type(store.ears)()
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop and start, in whatever way: what was committed is there again."""
    with Server({"synchronous_commit": "on"}) as running:
        yield running


@pytest.fixture(scope="session")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release that changed nothing but a function."""
    return make_next_release(tmp_path_factory.mktemp("next"))


@pytest.fixture
def schema(sql: psycopg.Connection[Any]) -> Iterator[str]:
    """A schema that does not exist yet; it and its functions are gone afterwards."""
    yield "shared"
    wipe(sql, "shared")
