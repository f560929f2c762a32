"""`ConcurrencyLimiter(3)`: at most three at the same time, in all processes that share the store."""

import asyncio
from datetime import timedelta

from paceline import Concurrency, Limiter
from paceline.testing import virtual_time


async def main() -> list[bool]:
    async with virtual_time() as time:
        limiter = Limiter("gpu", Concurrency(3), store=time.store)
        free = [await limiter.can_proceed()]  # 0 running
        await limiter.record_job_start()  # 1 running
        await limiter.record_job_start()  # 2 running
        await limiter.record_job_start()  # 3 running
        free.append(await limiter.can_proceed())  # at capacity
        await limiter.record_job_completion()  # 2 running
        free.append(await limiter.can_proceed())

        for _ in range(5):
            await limiter.record_job_completion()  # never below 0
        for _ in range(3):
            await limiter.record_job_start()
        free.append(await limiter.can_proceed())

        for _ in range(3):
            await limiter.record_job_completion()
        await limiter.set_next_available_time(time.now() + timedelta(seconds=10))  # a delay from outside counts, too
        free.append(await limiter.can_proceed())
        await time.advance("10s")
        free.append(await limiter.can_proceed())
        return free


if __name__ == "__main__":
    print(asyncio.run(main()))
