"""What the answer of a step says about a job that no worker failed, but the store itself."""

from __future__ import annotations

import msgspec


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the store itself failed: it can never fit, or took down its worker too often. For the caller's log."""

    id: str
    queue: str
    task: str
    group: str | None
    attempts_made: int
    error: str
    worker: str | None = None
