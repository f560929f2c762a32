"""Where jobs live: `open_store(url)` gives a store; one URL string names one shared store per process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from paceline.checks import check_name
from paceline.errors import ConfigError, MissingExtra, require
from paceline.stores.address import without_password
from paceline.stores.interface import Store

SCHEMES = (
    "memory:// (or memory://name for a second one), sqlite:///jobs.db, postgresql://user@host/database "
    "or redis://host:6379/0"
)
POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss", "unix")


def open_store(url: str, *, namespace: str = "default", **options: Any) -> Store:
    """A new store for a URL: `open_store("memory://")`. It connects at its first use."""
    check_name(namespace, option="namespace")
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme == "memory":
        from paceline.stores.memory.store import MemoryStore

        return _make(MemoryStore, url, options, namespace=namespace)
    if scheme == "sqlite":
        from paceline.stores.sqlite.store import SqliteStore

        return _make(SqliteStore, url, {"url": url, **options}, namespace=namespace)
    if scheme in POSTGRES:
        url, options = _own_options(url, options, ("schema", "pooler"))
        return _make(partial(_postgres_store(), url), url, options, namespace=namespace)
    if scheme in REDIS:
        url, options = _own_options(url, options, ("durability", "trust_restart"))
        return _make(partial(_redis_store(), url), url, options, namespace=namespace)
    shown = without_password(url) if isinstance(url, str) else url
    raise ConfigError(f"url={shown!r} is wrong: expected {SCHEMES}", option="url", value=shown)


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


def _postgres_store() -> Any:
    with _extra("postgres", "the PostgreSQL store", "psycopg", "psycopg_pool"):
        from paceline.stores.postgres.store import PostgresStore

        return PostgresStore


def _redis_store() -> Any:
    with _extra("redis", "the Redis store", "redis", "hiredis"):
        from paceline.stores.redis.store import RedisStore

        return RedisStore


def _own_options(url: str, options: dict[str, Any], names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Options of ours in the query of a URL, for those who have nothing but a URL; the driver gets the rest."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in names:
            found[name] = _FLAGS.get(value, value) if name in ("pooler", "trust_restart") else value
            require(
                name not in ("pooler", "trust_restart") or isinstance(found[name], bool), name, value, "true or false"
            )
    if not found:
        return url, options
    rest = urlencode([pair for pair in pairs if pair[0] not in names])
    return urlunsplit(parts._replace(query=rest)), {**found, **options}


_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


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
    try:
        store: Store = kind(**options, **more)
    except TypeError as error:
        raise ConfigError(f"open_store({without_password(url)!r}): {error}", option="options", value=options) from error
    return store
