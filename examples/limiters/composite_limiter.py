"""`CompositeLimiter([ConcurrencyLimiter(5), RateLimiter(…)])`: a job starts only if all agree; the latest time wins.

As one kind (`a & b`, `AllOf(a, b)`) it is checked and charged in one step, by claims and by `acquire()`. A
`CompositeLimiter` of named limiters is the original's object; a worker on the same store checks that in the claim, too.
"""

import asyncio
from datetime import timedelta

from paceline import AllOf, CompositeLimiter, Concurrency, Limiter, Rate
from paceline.testing import virtual_time


async def main() -> dict[str, object]:
    async with virtual_time() as time:
        seen: dict[str, object] = {}
        seen["one kind"] = Concurrency(5) & Rate(100, per="60s") == AllOf(Concurrency(5), Rate(100, per="60s"))

        slots = Limiter("openai-slots", Concurrency(5), store=time.store)
        rate = Limiter("openai", Rate(100, per="60s"), store=time.store)
        both = CompositeLimiter([slots, rate])

        for _ in range(5):
            await both.record_job_start()  # told to all parts
        seen["five running"] = (await both.can_proceed(), await slots.can_proceed(), await rate.can_proceed())

        await both.record_job_completion()
        seen["one ended"] = await both.can_proceed()

        await rate.set_next_available_time(time.now() + timedelta(minutes=2))
        seen["next in"] = str(await both.get_next_available_time() - time.now())  # the latest of the parts

        await both.clear()  # forgets starts and holds of all parts; the four that run still hold their slots
        seen["cleared"] = await both.can_proceed()
        return seen


if __name__ == "__main__":
    for what, value in asyncio.run(main()).items():
        print(f"{what}: {value}")
