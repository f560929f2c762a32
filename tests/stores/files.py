"""Stores in a file of their own, for tests that open many of them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from paceline.stores import open_store

from ..servers.files import new_file


class OwnFile:
    """A SQLite store in a new folder that goes when the store is closed; `handles` of it are used in turn.

    With several handles every call meets what another one wrote just before, as between processes.
    """

    def __init__(self, clock: Any, handles: int = 1) -> None:
        self._folder = Path(tempfile.mkdtemp())
        url = f"sqlite:///{new_file(self._folder / 'jobs.db')}"
        self._handles = [open_store(url, clock=clock, durability="normal") for _ in range(handles)]
        self._calls = 0
        self.handles = handles

    def __getattr__(self, name: str) -> Any:
        self._calls += 1
        return getattr(self._handles[self._calls % len(self._handles)], name)

    async def reopen(self) -> None:
        """As programs that end and start again."""
        for handle in self._handles:
            await handle.close()
            await handle.open()

    async def close(self) -> None:
        for handle in self._handles:
            await handle.close()
        shutil.rmtree(self._folder)
