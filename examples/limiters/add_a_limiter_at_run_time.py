"""`composite.addLimiter(…)`: limiters are added while workers run, and bind from then on."""

import asyncio

from paceline import CompositeLimiter, Concurrency, Delay, Job, Limiter, Queue, Worker
from paceline.testing import virtual_time


async def main() -> list[int]:
    """The starts in milliseconds: free at first, then ten at once, then also 100 ms apart."""
    async with virtual_time() as time:
        began = time.now()
        composite = CompositeLimiter()  # empty: free
        queue = Queue("calls", store=time.store)

        async def call(job: Job[None]) -> None:
            await time.sleep("1s")

        async with Worker("calls", call, store=time.store, concurrency=100, limiter=composite):
            await queue.add_many([("call", None)] * 12)
            await time.advance("5s")

            composite.add_limiter(Limiter("ten", Concurrency(10), store=time.store))
            await queue.add_many([("call", None)] * 12)
            await time.advance("5s")

            composite.add_limiter(Limiter("gap", Delay("100ms"), store=time.store))
            await queue.add_many([("call", None)] * 3)
            await time.advance("5s")
        return [round((start.at - began).total_seconds() * 1000) for start in time.starts()]


if __name__ == "__main__":
    print(asyncio.run(main()))
