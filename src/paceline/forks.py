"""What must not be shared with a forked child: one list for the whole process, gone through before and after a fork."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Forks(Protocol):
    """Somebody who holds sockets, locks, threads, event loops or files."""

    def forked(self) -> None:
        """In the child: begin anew. What is the parent's is neither used nor closed; `abandon` keeps it."""


_owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_resets: list[Callable[[], None]] = []
_abandoned: list[object] = []


def reset_when_forked(owner: Forks) -> None:
    """Call `owner.forked()` in every child; `before_fork()` and `after_fork()` in the parent, where it has them."""
    _owners[id(owner)] = owner


def in_child(reset: Callable[[], None]) -> Callable[[], None]:
    """Call this in every child, before the owners: for what belongs to a module."""
    _resets.append(reset)
    return reset


def abandon(*things: object) -> None:
    """Keep the parent's things for ever: closing or collecting them here would reach into the parent."""
    _abandoned.extend(thing for thing in things if thing)


class PerLoop(dict[K, V]):
    """What belongs to single event loops of this process: a child has none of them."""

    def __init__(self) -> None:
        super().__init__()
        reset_when_forked(self)

    def forked(self) -> None:
        abandon(self.copy())
        self.clear()

    def take(self) -> dict[K, V]:
        """All of it; nothing is left here."""
        taken = self.copy()
        self.clear()
        return taken


def _each(step: str) -> None:
    for owner in list(_owners.values()):
        call = getattr(owner, step, None)
        if call is not None:
            call()


def _forked() -> None:
    for reset in _resets:
        reset()
    _each("forked")


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=lambda: _each("after_fork"),
        after_in_child=_forked,
    )
