"""The stores that histories are driven on, each new and empty."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from paceline.stores import open_store

from ..servers.fresh import fresh_postgres
from ..servers.redis import empty_redis
from ..stores.files import OwnFile

OPENERS: dict[str, Callable[[Any], Any]] = {
    "sqlite": OwnFile,
    "sqlite-two-handles": partial(OwnFile, handles=2),
    "postgres": lambda clock: fresh_postgres(clock)("default"),
    "redis": lambda clock: open_store(empty_redis(), clock=clock),
}
"""A further store is one line here: a function of a clock that gives a new, empty store."""
