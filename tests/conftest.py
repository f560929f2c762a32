"""Settings that all tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from paceline.testing import VirtualTime, virtual_time

# Machines are shared: how long one example takes says nothing.
settings.register_profile("steady", deadline=None, print_blob=True)
settings.load_profile("steady")


@pytest.fixture(params=["memory", "sqlite"])
async def paceline_time(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VirtualTime]:
    """Virtual time on every store that has it: what works in memory works in a file."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'time.db'}?durability=normal"
    async with virtual_time(url) as time:
        yield time
