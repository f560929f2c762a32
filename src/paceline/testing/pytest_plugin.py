"""The pytest fixture `paceline_time`: virtual time on a memory store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


# Not async: whoever runs async tests (pytest-asyncio in either mode, anyio) would have to know of it.
@pytest.fixture
def paceline_time() -> Iterator[object]:
    """A `VirtualTime`: `await paceline_time.advance("1m")`, `paceline_time.store`, `paceline_time.starts()`."""
    from paceline.stores.memory.store import MemoryStore
    from paceline.testing.virtual import VirtualClock, VirtualTime

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    yield VirtualTime(store, clock)
    store.sleepers.close()
