"""Use case: no tenant monopolizes the queue. 20 slots, 3 active and 50 per minute for each tenant."""

import asyncio
from collections import Counter

from paceline import GroupLimits, Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> tuple[dict[str, int], dict[str, int]]:
    """The most at once and the starts of the first minute; the loud tenant was first, with a thousand jobs."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    async with virtual_time() as time:
        queue = Queue("tasks", store=time.store)
        await queue.add_many([("task", None, {"group": "loud"})] * 1000)
        for tenant in ("quiet-1", "quiet-2"):
            await queue.add_many([("task", None, {"group": tenant})] * 20)

        async def handler(job: Job[None]) -> None:
            tenant = job.group or ""
            starts[tenant] += 1
            running[tenant] += 1
            most[tenant] = max(most[tenant], running[tenant])
            await time.sleep("1s")
            running[tenant] -= 1

        limits = GroupLimits(concurrency=3, limiter=Rate(50, per="1m"))
        async with Worker("tasks", handler, store=time.store, concurrency=20, group=limits):
            await time.advance("59s")
    return dict(most), dict(starts)


if __name__ == "__main__":
    most, starts = asyncio.run(main())
    print(f"at once: {most}")
    print(f"in the first minute: {starts}")
