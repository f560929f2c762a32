"""The pytest fixture `paceline_time`: virtual time on a memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest


@pytest.fixture
async def paceline_time() -> AsyncIterator[object]:
    """A `VirtualTime`: `await paceline_time.advance("1m")`, `paceline_time.store`, `paceline_time.starts()`."""
    from paceline.testing.virtual import virtual_time

    async with virtual_time() as time:
        yield time
