"""Where jobs live: `open_store(url)` gives a store; one URL string names one shared store per process."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

from paceline.checks import check_name
from paceline.errors import ConfigError, MissingExtra
from paceline.stores.interface import Store

SCHEMES = "memory:// (or memory://name for a second one) or postgresql://user@host/database"
PLANNED = ("sqlite", "redis", "rediss")


def open_store(url: str, *, namespace: str = "default", **options: Any) -> Store:
    """A new store for a URL: `open_store("memory://")`. It connects at its first use."""
    check_name(namespace, option="namespace")
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme == "memory":
        from paceline.stores.memory.store import MemoryStore

        return _make(MemoryStore, url, options, namespace=namespace)
    if scheme in ("postgresql", "postgres"):
        try:
            from paceline.stores.postgres.store import PostgresStore
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "psycopg":
                raise
            raise MissingExtra("postgres", "the PostgreSQL store") from error
        return _make(PostgresStore, url, {"url": url} | options, namespace=namespace)
    later = f"; the {scheme} store is not part of this version" if scheme in PLANNED else ""
    raise ConfigError(f"url={url!r} is wrong: expected {SCHEMES}{later}", option="url", value=url)


def shared_store(where: str | Store, *, namespace: str | None = None) -> Store:
    """The store itself, or the one store of this process that a URL names."""
    if not isinstance(where, str):
        if not hasattr(where, "claim"):
            raise ConfigError(
                f"store={where!r} is wrong: expected a store or a URL ({SCHEMES})", option="store", value=where
            )
        if namespace is not None and namespace != where.namespace:
            raise ConfigError(
                f"namespace={namespace!r} is wrong: the given store has the namespace {where.namespace!r}",
                option="namespace",
                value=namespace,
            )
        return where
    key = (where, "default" if namespace is None else namespace)
    with _lock:
        store = _shared.get(key)
        if store is None:
            store = _shared[key] = open_store(where, namespace=key[1])
        return store


_shared: dict[tuple[str, str], Store] = {}
_lock = threading.Lock()


def _make(kind: Any, url: str, options: dict[str, Any], **more: Any) -> Store:
    try:
        store: Store = kind(**options, **more)
    except TypeError as error:
        raise ConfigError(f"open_store({url!r}): {error}", option="options", value=options) from error
    return store
