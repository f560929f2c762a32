"""What this program told the server once and expects it to know: a server that lost its data is told again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.clock import Micros
from paceline.forks import reset_when_forked
from paceline.limits import Limit
from paceline.stores.redis.records import encode_limit


class Remembered:
    """The limits that were declared here and the workers that run here."""

    def __init__(self, least_guard: Micros) -> None:
        self._least_guard = least_guard
        self._limits: dict[tuple[bool, str], tuple[Limit, Micros]] = {}
        self._workers: dict[str, dict[str, Any]] = {}
        reset_when_forked(self)

    def forked(self) -> None:
        """The workers that run are the parent's; a child declares the same limits."""
        self._workers = {}

    def declare(self, limits: Iterable[Limit], at: Micros) -> None:
        """The server accepted these, at this instant of its clock."""
        for limit in limits:
            self._limits[limit.detached, limit.name] = limit, at

    def drop(self, name: str) -> None:
        """Nobody wants this limit any more."""
        for detached in (False, True):
            self._limits.pop((detached, name), None)

    def register(self, worker: dict[str, Any]) -> None:
        self._workers[worker["id"]] = worker

    def unregister(self, worker: str) -> None:
        self._workers.pop(worker, None)

    def steps(self) -> list[tuple[str, dict[str, Any]]]:
        """The steps that tell a server all of it; what it was told later by others stays."""
        found: list[tuple[str, dict[str, Any]]] = []
        # A limiter's declaration takes the scope of the limit of its name, so that one comes first.
        for detached in (False, True):
            known = [each for key, each in list(self._limits.items()) if key[0] is detached]
            if known:
                limits = [encode_limit(limit, self._least_guard) | {"since": since} for limit, since in known]
                found.append(("set_limits", {"limits": limits, "again": True}))
        return found + [("register", {"worker": worker}) for worker in list(self._workers.values())]
