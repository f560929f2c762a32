"""Where a history takes place: a fresh URL and namespace on each store."""

from __future__ import annotations

import uuid
from pathlib import Path

from ..servers.fresh import empty_postgres
from ..servers.redis import empty_redis

STORES = ("memory", "sqlite", "postgres", "redis")


def place(store: str, folder: Path) -> tuple[str, str]:
    """A URL that any process can open, and a namespace of its own."""
    namespace = f"h{uuid.uuid4().hex[:8]}"
    if store == "memory":
        return f"memory://{namespace}", namespace
    if store == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}", namespace
    return (empty_postgres() if store == "postgres" else empty_redis()), namespace
