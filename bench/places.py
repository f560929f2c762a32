"""Where jobs are kept during a measurement: the four stores, empty, with what can be asked of them from outside.

Servers come from packages and are started for one run of the bench; nothing has to be installed or running.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import sqlite3
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


class Place:
    """A store that can be emptied. Without a server there is nothing to ask."""

    def __init__(self, url: str, server: int = 0) -> None:
        self.url = url
        self.server = server
        """The process of the server; 0: none."""

    def cpu(self) -> float:
        """Processor time of the server until now."""
        if not self.server:
            return 0.0
        import psutil

        process = psutil.Process(self.server)
        children = [child for child in process.children() if child.is_running()]
        times = [each.cpu_times() for each in (process, *children)]
        own = sum(time.user + time.system for time in times)
        return own + times[0].children_user + times[0].children_system

    def commands(self) -> int | None:
        """Commands the server was asked until now, whoever asked."""
        return None

    def size(self) -> int:
        """Bytes that everything in it takes."""
        raise NotImplementedError

    def connections(self) -> int | None:
        """Connections to it now, but for the one that asks."""
        return None

    def traces(self) -> dict[str, float]:
        """What jobs leave behind: `bytes` that everything takes, and what else the store counts."""
        return {"bytes": self.size()}


class Memory(Place):
    def traces(self) -> dict[str, float]:
        """Nothing: to follow what Python allocates would slow down what is measured."""
        return {}

    def size(self) -> int:
        """What Python has allocated since this was asked first."""
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        return tracemalloc.get_traced_memory()[0]


class Sqlite(Place):
    def size(self) -> int:
        """Pages in use, whether they are in the file or still in the log beside it."""
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
            (size, pages, free) = (
                file.execute(f"pragma {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
            )
        return int(size * (pages - free))


class Postgres(Place):
    def commands(self) -> int | None:
        return int(self._ask("select coalesce(sum(calls), 0) from pg_stat_statements where query not like '%pg_stat%'"))

    def size(self) -> int:
        return int(self._ask("select pg_database_size(current_database())"))

    def connections(self) -> int | None:
        return int(
            self._ask(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and backend_type = 'client backend' and pid <> pg_backend_pid()"
            )
        )

    def traces(self) -> dict[str, float]:
        return {
            "bytes": self.size(),
            "wal": self._ask("select pg_current_wal_lsn() - '0/0'"),
            "dead": self._ask("select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables"),
        }

    def _ask(self, query: str) -> float:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("create extension if not exists pg_stat_statements")
            found = connection.execute(query).fetchone()
        assert found is not None
        return float(found[0])


class Redis(Place):
    def commands(self) -> int | None:
        return sum(told["calls"] for name, told in self._info("commandstats").items() if name != "cmdstat_info")

    def size(self) -> int:
        return int(self._info("memory")["used_memory"])

    def connections(self) -> int | None:
        return int(self._info("clients")["connected_clients"]) - 1

    def _info(self, section: str) -> dict[str, Any]:
        import redis

        with redis.Redis.from_url(self.url) as client:
            told: dict[str, Any] = client.info(section)
            return told


KINDS: dict[str, type[Place]] = {"memory": Memory, "sqlite": Sqlite, "postgres": Postgres, "redis": Redis}

# What a server is given: everything is durable on PostgreSQL, nothing is written to disk on Redis.
POSTGRES = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
REDIS = ("--appendonly", "no")


class Places:
    """The servers of one run, started when first needed; each measurement gets a store with nothing in it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="paceline-bench-"))
        self._numbers = itertools.count(1)
        self._postgres: Any = None
        self._redis: Any = None

    def __enter__(self) -> Places:
        # Whoever is told to end takes its servers with it.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._postgres is not None:
            self._postgres.__exit__()
        if self._redis is not None:
            self._redis.remove()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def fresh(self, store: str) -> Iterator[Place]:
        """An empty store for one measurement; what is in it goes with it."""
        if store == "postgres":
            yield from self._database()
        elif store == "redis":
            yield self._empty_redis()
        elif store == "sqlite":
            folder = self._folder / f"{next(self._numbers)}"
            folder.mkdir()
            yield Sqlite(f"sqlite:///{folder / 'jobs.db'}")
            shutil.rmtree(folder, ignore_errors=True)
        else:
            yield Memory("memory://")

    def _database(self) -> Iterator[Place]:
        import psycopg
        from servers.postgres import Server

        if self._postgres is None:
            self._postgres = Server(POSTGRES).__enter__()
        server = self._postgres
        name = f"bench{next(self._numbers)}"
        postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"create database {name}")
            try:
                yield Postgres(server.url(name), postmaster)
            finally:
                connection.execute(f"drop database {name} with (force)")

    def _empty_redis(self) -> Place:
        from servers.redis import RedisServer, free_port

        if self._redis is None:
            self._redis = RedisServer(*REDIS, port=free_port())
            self._redis.start()
        server = self._redis
        for words in (("FLUSHALL",), ("FUNCTION", "FLUSH"), ("CONFIG", "RESETSTAT")):
            assert server.ask(*words).startswith(b"+OK"), words
        return Redis(server.url, server.process.pid)
