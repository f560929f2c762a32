"""What the Redis store alone can do wrong: its port of the kernel, its server, its connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from paceline.stores import open_store
from paceline.stores.interface import Store

from ..servers.redis import RedisServer, empty_redis, free_port


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store on the shared server, on the server's own time."""
    store = open_store(empty_redis())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def new_server() -> Iterator[Callable[..., RedisServer]]:
    """`new_server("--appendonly", "yes")`: a server of one's own, on a port, to be ended in any way."""
    servers: list[RedisServer] = []

    def start(*options: str, **more: Any) -> RedisServer:
        server = RedisServer(*options, port=more.get("port") or free_port())
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.remove()
