"""Notices that a Python file below this folder changed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

EVERY = 0.5
"""Seconds between two looks."""
SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv"}


class Files:
    """What the files looked like when the worker began."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path.cwd()
        self._seen = self._look()

    async def change(self) -> str:
        """The next file that changes."""
        while True:
            await asyncio.sleep(EVERY)
            found = await asyncio.to_thread(self._look)
            changed = sorted(name for name in {*found, *self._seen} if found.get(name) != self._seen.get(name))
            self._seen = found
            if changed:
                return changed[0]

    def _look(self) -> dict[str, int]:
        found = {}
        for folder, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        found[os.path.relpath(path, self._folder)] = os.stat(path).st_mtime_ns
                    except OSError:
                        continue  # it went while we looked
        return found
