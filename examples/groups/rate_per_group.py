"""10 jobs per minute and 5 at once for each group: one window per group for all workers, not one per worker."""

import asyncio
from collections import Counter

from paceline import GroupLimits, Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> list[dict[str | None, int]]:
    """Starts of each group in the first, second and third minute, with three workers."""
    async with virtual_time() as time:
        began = time.now()
        queue = Queue("api-calls", store=time.store)
        for tenant in ("tenant-1", "tenant-2"):
            await queue.add_many([("call", None, {"group": tenant})] * 25)

        async def handler(job: Job[None]) -> None: ...

        limits = GroupLimits(concurrency=5, limiter=Rate(10, per="1m"))
        crew = [Worker("api-calls", handler, store=time.store, concurrency=20, group=limits) for _ in range(3)]
        async with crew[0], crew[1], crew[2]:
            await time.advance("3m")
        minutes: list[Counter[str | None]] = [Counter(), Counter(), Counter()]
        for start in time.starts():
            minutes[int((start.at - began).total_seconds() // 60)][start.group] += 1
        return [dict(minute) for minute in minutes]


if __name__ == "__main__":
    for number, minute in enumerate(asyncio.run(main()), 1):
        print(f"minute {number}: {minute}")
