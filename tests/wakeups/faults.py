"""Channels that fail in silence, planted into the process of the sleepers: no test of wake-ups may pass with one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from paceline.stores.postgres.listening import Listening
from paceline.stores.redis.listeners import Ears as RedisEars
from paceline.stores.sqlite.listening import Listening as SqliteListening

Plant = Callable[[pytest.MonkeyPatch], object]


def _nothing(*_: Any) -> None:
    """Whatever comes is dropped."""


def _ends_at_once(self: Listening) -> None:
    self._nudge.close()
    self._nudged.close()


async def _never(self: Any) -> None:
    await asyncio.Event().wait()


IGNORES: dict[str, Plant] = {
    "sqlite": lambda patch: patch.setattr(SqliteListening, "_take", _nothing),
    "postgres": lambda patch: patch.setattr(Listening, "_hear", _nothing),
    "redis": lambda patch: patch.setattr(RedisEars, "_heard", _nothing),
}
"""Everything arrives, and nobody cares."""

DEAD: dict[str, Plant] = {
    "sqlite": lambda patch: (
        patch.setattr(SqliteListening, "_poll", _nothing),
        patch.setattr(SqliteListening, "_receive", _nothing),
    ),
    "postgres": lambda patch: patch.setattr(Listening, "_run", _ends_at_once),
    "redis": lambda patch: patch.setattr(RedisEars, "_hear", _never),
}
"""Nobody is there who could receive anything."""


def _stays_away(self: Listening, error: Exception) -> None:
    self._stop.set()


async def _gives_up(self: RedisEars) -> None:
    raise asyncio.CancelledError


NEVER_BACK: dict[str, Plant] = {
    "postgres": lambda patch: patch.setattr(Listening, "_retry", _stays_away),
    "redis": lambda patch: patch.setattr(RedisEars, "_look_again", _gives_up),
}
"""The channel works until it is cut, and then never again."""
