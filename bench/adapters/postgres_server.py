"""A PostgreSQL server of its own for each measurement, with the settings that a server has: nothing is turned off."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from servers.postgres import Server

USUAL = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "128MB"}


def new_server() -> Server:
    """Start one; `with new_server() as server: server.url()`."""
    return Server(USUAL)
