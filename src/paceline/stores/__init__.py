"""Where jobs live: `open_store(url)` gives a store; one URL string names one shared store per process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from paceline.checks import check_count, check_name
from paceline.errors import ConfigError, MissingExtra
from paceline.forks import in_child
from paceline.stores.address import Options, count, flag, seconds, split, take_options, text, without_password
from paceline.stores.interface import Store
from paceline.text import show

SCHEMES = (
    "memory:// (or memory://name for a second one), sqlite:///jobs.db, postgresql://user@host/database "
    "or redis://host:6379/0"
)
POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss", "unix")
MEMORY_OPTIONS: Options = {"max_payload": count}
SQLITE_OPTIONS: Options = {"durability": text, "max_payload": count}
POSTGRES_OPTIONS: Options = {"schema": text, "pooler": flag, "max_payload": count}
REDIS_OPTIONS: Options = {
    "durability": text,
    "trust_restart": flag,
    "max_payload": count,
    "connect_timeout": seconds,
    "timeout": seconds,
}


def open_store(url: str, *, namespace: str = "default", **options: Any) -> Store:
    """A new store for a URL: `open_store("memory://")`. It connects at its first use."""
    check_name(namespace, option="namespace")
    scheme = split(url).scheme if isinstance(url, str) else ""
    if scheme == "memory":
        from paceline.stores.memory.store import MemoryStore

        _, found = take_options(url, MEMORY_OPTIONS)
        return _make(MemoryStore, url, {**options, **found}, namespace=namespace)
    if scheme == "sqlite":
        from paceline.stores.sqlite.store import SqliteStore

        url, found = take_options(url, SQLITE_OPTIONS)
        return _make(partial(SqliteStore, url), url, {**options, **found}, namespace=namespace)
    if scheme in POSTGRES:
        store, known = _postgres_store()
        url, found = take_options(url, POSTGRES_OPTIONS, known)
        return _make(partial(store, url), url, {**options, **found}, namespace=namespace)
    if scheme in REDIS:
        store, known = _redis_store()
        url, found = take_options(url, REDIS_OPTIONS, known(scheme))
        return _make(partial(store, url), url, {**options, **found}, namespace=namespace)
    shown = without_password(url) if isinstance(url, str) else url
    raise ConfigError(f"url={show(shown)} is wrong: expected {SCHEMES}", option="url", value=shown)


def shared_store(where: str | Store, *, namespace: str | None = None) -> Store:
    """The store itself, or the one store of this process that a URL names."""
    if not isinstance(where, str):
        if not hasattr(where, "claim"):
            raise ConfigError(
                f"store={show(where)} is wrong: expected a store or a URL ({SCHEMES})", option="store", value=where
            )
        if namespace is not None and namespace != where.namespace:
            raise ConfigError(
                f"namespace={show(namespace)} is wrong: the given store has the namespace {where.namespace!r}",
                option="namespace",
                value=namespace,
            )
        return where
    key = (where, "default" if namespace is None else check_name(namespace, option="namespace"))
    with _lock:
        store = _shared.get(key)
        if store is None:
            store = _shared[key] = open_store(where, namespace=key[1])
        return store


_shared: dict[tuple[str, str], Store] = {}
_lock = threading.Lock()


@in_child
def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


def _postgres_store() -> Any:
    with _extra("postgres", "the PostgreSQL store", "psycopg", "psycopg_pool"):
        from paceline.stores.postgres.store import PostgresStore
        from paceline.stores.postgres.urls import url_options

        return PostgresStore, url_options()


def _redis_store() -> Any:
    with _extra("redis", "the Redis store", "redis", "hiredis"):
        from paceline.stores.redis.client import url_options
        from paceline.stores.redis.store import RedisStore

        return RedisStore, url_options


@contextmanager
def _extra(name: str, needed_for: str, *packages: str) -> Iterator[None]:
    """A missing package of an extra is an error that says how to install it; any other one is what it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in packages:
            raise MissingExtra(name, needed_for) from error
        raise


def _make(kind: Any, url: str, options: dict[str, Any], **more: Any) -> Store:
    if "max_payload" in options:
        options = {**options, "max_payload": check_count(options["max_payload"], option="max_payload")}
    try:
        store: Store = kind(**options, **more)
    except TypeError as error:
        raise ConfigError(f"open_store({without_password(url)!r}): {error}", option="options", value=options) from error
    return store
