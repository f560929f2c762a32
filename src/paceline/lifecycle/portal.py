"""A bridge for code without an event loop: one background thread runs the coroutines of all `_sync` calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from paceline.errors import ConfigError
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
