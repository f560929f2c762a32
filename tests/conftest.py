"""Settings that all tests share."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from paceline.stores.sqlite import connect
from paceline.testing import VirtualTime, virtual_time

from .servers.files import new_file

# A shell ignores Ctrl-C in what it runs in the background, and every process started from there would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines are shared: how long one example takes says nothing.
settings.register_profile("steady", deadline=None, print_blob=True)
settings.load_profile("steady")

# No test cuts the power: without waiting for the disk they are many times faster.
connect.DURABILITY["normal"] = "OFF"


@pytest.fixture(params=["memory", "sqlite"])
async def paceline_time(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VirtualTime]:
    """Virtual time on every store that has it: what works in memory works in a file."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{new_file(tmp_path / 'time.db')}?durability=normal" if sqlite else "memory://"
    async with virtual_time(url) as time:
        yield time
