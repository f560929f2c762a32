"""Where the server's time for a job goes on Redis: `python -m bench.redis_steps [--jobs 20000] [shape ...]`.

Jobs are added in bulk and drained by claims of 100 that carry the ends of the last one, without a worker in between.
For each kind of step: the processor time of the server, the time inside its commands, and what they are.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

import redis

from bench.adapters.interface import PAYLOAD
from bench.adapters.ours import EACH, GROUPS, SHARED
from bench.places import Place, Places
from paceline import GroupLimits, Limit, Queue, open_store
from paceline.stores.interface import Ask, Finish, Outcome

SLOTS = 100
BULK = 1_000
SHAPES = ("plain", "limit", "groups", "tenants", "kept")
LEASE = 30_000_000


class Lap:
    """What the server did between two looks: processor time, steps, commands and bytes."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client = redis.Redis.from_url(place.url)
        self._client.config_resetstat()
        self._cpu = place.cpu()

    def end(self, jobs: int) -> dict[str, Any]:
        """The figures for each job."""
        cpu = self._place.cpu() - self._cpu
        stats: dict[str, Any] = self._client.info("commandstats")
        net: dict[str, Any] = self._client.info("stats")
        self._client.close()
        steps = stats.pop("cmdstat_fcall", {"calls": 0, "usec": 0})
        stats = {name: told for name, told in stats.items() if name not in ("cmdstat_info", "cmdstat_config|resetstat")}
        inside = {name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()}
        return {
            "server": cpu / jobs * 1e6,
            "step": steps["usec"] / jobs,
            "inside": sum(told["usec"] for told in stats.values()) / jobs,
            "steps": steps["calls"] / jobs,
            "commands": sum(inside.values()) / jobs,
            "in": net["total_net_input_bytes"] / jobs,
            "out": net["total_net_output_bytes"] / jobs,
            "names": {name: calls / jobs for name, calls in sorted(inside.items(), key=lambda each: -each[1])},
        }


async def measure(place: Place, shape: str, jobs: int) -> dict[str, dict[str, Any]]:
    """Add so many jobs of a shape and drain them."""
    store = open_store(place.url)
    queue = Queue("bench", store=store, limits=[SHARED] if shape in ("limit", "tenants") else [])
    await queue.counts()
    if shape == "tenants":
        await store.set_limits(_group_limits(EACH))
    options: dict[str, Any] = {} if shape == "kept" else {"keep": 0}
    lap = Lap(place)
    for first in range(0, jobs, BULK):
        some = range(min(BULK, jobs - first))
        if shape in ("groups", "tenants"):
            await queue.add_many([("noop", PAYLOAD, options | {"group": f"g{n % GROUPS}"}) for n in some])
        else:
            await queue.add_many([("noop", PAYLOAD, options) for n in some])
    found = {"add": lap.end(jobs)}
    lap = Lap(place)
    finishes: Sequence[Finish] = ()
    number = 0
    while True:
        number += 1
        ask = Ask(
            queues=["bench"], slots=SLOTS, worker="w", lease=LEASE, claim_id=str(number), tasks=frozenset({"noop"})
        )
        claim = await store.claim(ask, finishes)
        finishes = [Finish(id=job.id, fence=job.fence, outcome=Outcome.COMPLETED) for job in claim.jobs]
        if not finishes:
            break
    found["drain"] = lap.end(jobs)
    await store.close()
    return found


def _group_limits(limits: GroupLimits) -> list[Limit]:
    return [Limit("bench:groups", limits.kind, queues=["bench"], by="group")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--jobs", type=int, default=20_000)
    options = parser.parse_args()
    print("| shape, µs per job | server | in steps | in their commands | steps | commands | bytes in | out | which |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for shape in options.shapes:
        with Places() as places, places.fresh("redis") as place:
            for part, told in asyncio.run(measure(place, shape, options.jobs)).items():
                numbers = [f"{told[name]:.1f}" for name in ("server", "step", "inside")]
                numbers += [f"{told[name]:.3f}" for name in ("steps", "commands")]
                numbers += [f"{told[name]:.0f}" for name in ("in", "out")]
                names = ", ".join(f"{name} {calls:.2f}" for name, calls in told["names"].items() if calls >= 0.005)
                print(f"| {shape}, {part} | {' | '.join(numbers)} | {names} |", flush=True)


if __name__ == "__main__":
    main()
