"""One measurement in a process of its own: `python bench/child.py drain ours-0 20000` prints JSON.

With `--profile` it prints where the time went instead.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from adapters.interface import FileQueueAdapter, Lap, LimiterAdapter, QueueAdapter

PATTERNS = ("granted", "sliding", "refused")


def queue_adapter(system: str) -> QueueAdapter:
    """`ours-<groups>` or `ours-<groups>-<concurrency>`, `pgqueuer-<batch>`; `postgres-<groups>-<limits>` beside
    `pgqueuer_postgres-<batch>` and `procrastinate-<concurrency>`."""
    name, *numbers = system.split("-")
    if name == "postgres":
        from adapters.ours_postgres import OursPostgres

        return OursPostgres(int(numbers[2]) if len(numbers) > 2 else 100, int(numbers[0]), int(numbers[1]))
    if name == "pgqueuer_postgres":
        from adapters.pgqueuer_postgres import PgQueuerPostgres

        return PgQueuerPostgres(int(numbers[0]))
    if name == "procrastinate":
        from adapters.procrastinate_postgres import Procrastinate

        return Procrastinate(int(numbers[0]))
    if name == "pgqueuer":
        from adapters.pgqueuer_memory import PgQueuerMemory

        return PgQueuerMemory(int(numbers[0]))
    from adapters.ours import OursQueue

    return OursQueue(int(numbers[1]) if len(numbers) > 1 else 100, int(numbers[0]))


def file_adapter(system: str, file: Path, limit: tuple[int, int] | None = None) -> FileQueueAdapter:
    """`ours-<durability>-<shape>`, `litequeue`, `huey-<threads>` or `huey-<threads>-default`, on a file.

    `limit` is the number of starts, and in how many seconds.
    """
    name, *words = system.split("-")
    if name == "litequeue":
        from adapters.litequeue_sqlite import LitequeueSqlite

        return LitequeueSqlite(file)
    if name == "huey":
        from adapters.huey_sqlite import HueySqlite

        return HueySqlite(file, int(words[0]), limit, fsync=None if "default" in words else False)
    from adapters.ours_sqlite import OursSqlite

    return OursSqlite(file, *words, limit=limit)


def redis_adapter(system: str) -> Any:
    """`ours-off-100` (limits, concurrency), or the name of a peer and its concurrency."""
    name, *rest = system.split("-")
    if name == "ours":
        from adapters.ours_redis import OursRedis

        return OursRedis(rest[0], int(rest[1]))
    if name == "saq":
        from adapters.saq_redis import SaqRedis

        return SaqRedis(int(rest[0]))
    if name == "dramatiq":
        from adapters.dramatiq_redis import DramatiqRedis

        return DramatiqRedis(int(rest[0]))
    if name == "taskiq":
        from adapters.taskiq_streams import TaskiqRedis

        return TaskiqRedis(int(rest[0]))
    from adapters.celery_redis import CeleryRedis

    return CeleryRedis(int(rest[0]))


async def redis(system: str, jobs: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    adapter = redis_adapter(system)
    adds = await adapter.setup(jobs)
    settle()
    if profile is not None:
        profile.enable()
    lap = await adapter.drain()
    result = {"name": adapter.name, "seconds": lap.seconds, "cpu": lap.cpu, "n": jobs, **adds}
    if profile is None:
        # Some peers go on looking for the server that is gone, and would never let the loop end.
        print(json.dumps(result), flush=True)
        os._exit(0)
    return result


def limiter_adapter(system: str) -> LimiterAdapter:
    if system == "limits":
        from adapters.limits_memory import LimitsMemory

        return LimitsMemory()
    from adapters.ours import OursLimiter

    return OursLimiter()


async def drain(system: str, jobs: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    adapter = queue_adapter(system)
    await adapter.setup(jobs)
    settle()
    if profile is not None:
        profile.enable()
    lap = await adapter.drain()
    return {"name": adapter.name, "seconds": lap.seconds, "cpu": lap.cpu, "n": jobs}


async def limiter(system: str, n: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    system, pattern = system.split("-")
    assert pattern in PATTERNS, pattern
    adapter = limiter_adapter(system)
    settle()
    if profile is not None:
        profile.enable()
    lap = await getattr(adapter, pattern)(n)
    return {"name": adapter.name, "seconds": lap.seconds, "cpu": lap.cpu, "n": n}


async def flat(system: str, n: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    from flat import SHAPES, measure

    return await measure(SHAPES[system], n, settle)


async def sqlite_drain(system: str, jobs: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        adapter = file_adapter(system, Path(folder) / "jobs.db")
        await adapter.setup(jobs)
        settle()
        if profile is not None:
            profile.enable()
        lap = await adapter.drain()
        await adapter.close()
    return {"name": adapter.name, "seconds": lap.seconds, "cpu": lap.cpu, "n": jobs}


async def sqlite_add(system: str, jobs: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    """`<system>:<way>`: singly, together (50 tasks) or bulk (1,000 at a time)."""
    system, way = system.split(":")
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        adapter: Any = file_adapter(system, Path(folder) / "jobs.db")
        settle()
        if profile is not None:
            profile.enable()
        lap: Lap
        if way == "together":
            lap = await adapter.add_together(jobs, 50)
        elif way == "bulk":
            lap = await adapter.add_in_bulk(jobs, 1_000)
        else:
            lap = await adapter.add_singly(jobs)
        await adapter.close()
    return {"name": adapter.name, "seconds": lap.seconds, "cpu": lap.cpu, "n": jobs}


async def sqlite_latency(system: str, samples: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    from processes import latency

    return await latency(system, samples)


async def sqlite_use(system: str, jobs: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    """`<system>:<processes>`."""
    from processes import use

    system, processes = system.split(":")
    return await use(system, int(processes), jobs)


async def sqlite_flat(system: str, n: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    """`large` or `middle`."""
    from flat import measure_file

    return await measure_file(system, n, settle)


SUITES = {
    "drain": drain,
    "limiter": limiter,
    "flat": flat,
    "sqlite-drain": sqlite_drain,
    "sqlite-add": sqlite_add,
    "sqlite-latency": sqlite_latency,
    "sqlite-use": sqlite_use,
    "sqlite-flat": sqlite_flat,
    "redis": redis,
}


def settle() -> None:
    """The same for all: what set-up left is taken out of the collector's sight, then the collector works as usual."""
    gc.collect()
    gc.freeze()


def run(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("system")
    parser.add_argument("n", type=int)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    result = run(SUITES[options.suite](options.system, options.n, profile))
    if profile is not None:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
