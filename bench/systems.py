"""Which systems are measured on which store, and with which settings: the one table of what runs."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from bench.adapters.interface import Adapter, Rate

STORES = ("memory", "sqlite", "postgres", "redis")


class Peer(NamedTuple):
    """A system beside ours on one store."""

    store: str
    system: str
    """The name of its file in `adapters/`."""
    settings: tuple[str, ...]
    """All are drained and the fastest one counts; the first is the fastest known, and alone in a quick run."""
    packages: tuple[str, ...]
    share: float = 1.0
    """How many of the jobs it gets: a slow one tells as much with fewer."""
    missing: str = "is not installed"


PEERS = (
    Peer("memory", "pgqueuer", ("200", "100", "500"), ("pgqueuer",)),
    Peer("sqlite", "litequeue", ("1",), ("litequeue",), 0.5, "needs Python 3.12 or newer"),
    Peer("sqlite", "huey", ("1", "4", "1-default"), ("huey",), 0.25),
    Peer("postgres", "pgqueuer", ("asyncpg-300", "asyncpg-100", "psycopg-300"), ("pgqueuer", "asyncpg", "psycopg")),
    Peer("postgres", "procrastinate", ("10", "50"), ("procrastinate", "psycopg"), 0.1),
    Peer("redis", "dramatiq", ("32", "8"), ("dramatiq", "redis"), 0.25),
    Peer("redis", "taskiq", ("100", "10"), ("taskiq", "taskiq-redis", "redis"), 0.25),
    Peer("redis", "saq", ("10", "100"), ("saq", "redis"), 0.2),
    Peer("redis", "celery", ("1", "10"), ("celery", "kombu", "redis"), 0.1),
    Peer("redis", "bullmq", ("100", "10"), ()),
)


def adapter(spec: str, url: str, limit: Rate | None = None) -> Adapter:
    """`system:setting`, as in `saq:10`."""
    system, _, setting = spec.partition(":")
    made: Adapter = import_module(f"bench.adapters.{system}").System(url, setting, limit)
    return made


def why_not(peer: Peer) -> str:
    """Why a peer cannot be measured here; nothing if it can."""
    if peer.system == "bullmq":
        from bench.adapters import bullmq

        return bullmq.install()
    try:
        for package in peer.packages:
            version(package)
    except PackageNotFoundError:
        return peer.missing
    return ""
