"""At most 2 active jobs per group, over all workers: `group: { concurrency: 2 }`. Jobs without a group are free."""

import asyncio
from collections import Counter

from paceline import GroupLimits, Job, Queue, Worker
from paceline.testing import virtual_time


async def main() -> dict[str, int]:
    """The most of each tenant that ran at once, with three workers of 20 slots."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    async with virtual_time() as time:
        queue = Queue("tasks", store=time.store)
        for tenant in ("tenant-1", "tenant-2", "tenant-3"):
            await queue.add_many([("process", None, {"group": tenant})] * 10)
        await queue.add_many([("process", None)] * 10)

        async def handler(job: Job[None]) -> None:
            tenant = job.group or "no group"
            running[tenant] += 1
            most[tenant] = max(most[tenant], running[tenant])
            await time.sleep("1s")
            running[tenant] -= 1

        crew = [
            Worker("tasks", handler, store=time.store, concurrency=20, group=GroupLimits(concurrency=2))
            for _ in range(3)
        ]
        async with crew[0], crew[1], crew[2]:
            await time.advance("1m")
    return dict(sorted(most.items()))


if __name__ == "__main__":
    print(asyncio.run(main()))
