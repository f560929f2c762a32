"""One measurement in a process of its own: `python bench/child.py drain ours-off 20000` prints JSON.

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
from collections.abc import Coroutine
from typing import Any

from adapters.interface import LimiterAdapter, QueueAdapter

PATTERNS = ("granted", "sliding", "refused")


def queue_adapter(system: str) -> QueueAdapter:
    """`ours-<groups>` or `ours-<groups>-<concurrency>`, `pgqueuer-<batch>`."""
    name, *numbers = system.split("-")
    if name == "pgqueuer":
        from adapters.pgqueuer_memory import PgQueuerMemory

        return PgQueuerMemory(int(numbers[0]))
    from adapters.ours import OursQueue

    return OursQueue(int(numbers[1]) if len(numbers) > 1 else 100, int(numbers[0]))


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
    parser.add_argument("suite", choices=["drain", "limiter", "flat", "redis"])
    parser.add_argument("system")
    parser.add_argument("n", type=int)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    suite = {"drain": drain, "limiter": limiter, "flat": flat, "redis": redis}[options.suite]
    profile = cProfile.Profile() if options.profile else None
    result = run(suite(options.system, options.n, profile))
    if profile is not None:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
