"""A bridge for code without an event loop: one background thread runs the coroutines of all `_sync` calls."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from paceline.errors import ConfigError
from paceline.forks import abandon, in_child
from paceline.stores.interface import Store

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_sync(store: Store, call: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> T:
    """Run a coroutine to its end; refuses where waiting would block a running event loop."""
    if not store.never_blocks and _inside_a_loop():
        raise ConfigError(
            f"{name}_sync() would block the running event loop; write: await {name}()", option="call", value=name
        )
    return asyncio.run_coroutine_threadsafe(call(), _background_loop()).result()


def run_here(call: Callable[[Any], Coroutine[Any, Any, T]], *, name: str, within: Any) -> T:
    """Run a coroutine to its end in the caller's thread: to it belong the connection and the transaction it uses."""
    if _inside_a_loop():
        raise ConfigError(
            f"{name}_sync() would block the running event loop; write: await {name}()", option="call", value=name
        )
    if inspect.iscoroutinefunction(getattr(within, "commit", None)):
        raise ConfigError(
            f"within={within!r} is wrong: an async connection belongs to its event loop; write: await {name}(), "
            f"or give {name}_sync() a connection that is not async",
            option="within",
            value=within,
        )
    if hasattr(within, "ensure_connection"):
        # Django's connection is another one inside an event loop: what is meant is the one of this thread, connected.
        within.ensure_connection()
        within = within.ensure_connection.__self__
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(call(within))
    finally:
        loop.close()


@in_child
def _reset() -> None:
    """The thread that runs the loop is the parent's: the child begins its own."""
    global _lock, _loop
    abandon(_loop)
    _lock, _loop = threading.Lock(), None


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="paceline-sync", daemon=True).start()
        return _loop
