"""`EvenlySpacedRateLimiter({ maxExecutions: 60, windowSizeInSeconds: 60 })`: one start per second, whatever jobs take.

The original subtracts the average duration from the interval, so that long jobs start more often than allowed (60 in
10 seconds where 20 are allowed). Here the interval is from start to start.
"""

import asyncio

from paceline import EvenlySpaced, Job, Queue, Worker
from paceline.testing import virtual_time


async def main() -> dict[str, list[float]]:
    """The first five starts, for jobs that take no time and for jobs that take longer than the interval."""
    return {takes: (await starts(takes))[:5] for takes in ("1ms", "10s")}


async def starts(takes: str) -> list[float]:
    async with virtual_time() as time:
        began = time.now()
        queue = Queue("calls", store=time.store)
        await queue.add_many([("call", None)] * 60)

        async def call(job: Job[None]) -> None:
            await time.sleep(takes)

        async with Worker("calls", call, store=time.store, concurrency=60, limiter=EvenlySpaced(60, per="60s")):
            await time.advance("2m")
        return [(start.at - began).total_seconds() for start in time.starts()]


if __name__ == "__main__":
    print(asyncio.run(main()))
