"""`ILimiter`: the six methods, on a named limit. They have the same names here, in Python's spelling."""

import asyncio
from datetime import timedelta

from paceline import Limiter, LimiterProtocol, Rate
from paceline.testing import virtual_time


async def main() -> dict[str, object]:
    async with virtual_time() as time:
        limiter: LimiterProtocol = Limiter("openai", Rate(2, per="1m"), store=time.store)
        seen: dict[str, object] = {}

        seen["free"] = await limiter.can_proceed()
        await limiter.record_job_start()
        await limiter.record_job_start()
        seen["after two starts"] = await limiter.can_proceed()
        seen["next in"] = str(await limiter.get_next_available_time() - time.now())

        await limiter.record_job_completion()  # frees a slot of a Concurrency; a rate goes on counting the start
        seen["after a completion"] = await limiter.can_proceed()

        await limiter.set_next_available_time(time.now() + timedelta(minutes=5))  # a 429 said so
        await time.advance("1m")
        seen["the window is free, but held"] = await limiter.can_proceed()
        seen["held for"] = str(await limiter.get_next_available_time() - time.now())

        await limiter.clear()
        seen["cleared"] = await limiter.can_proceed()
        return seen


if __name__ == "__main__":
    for what, value in asyncio.run(main()).items():
        print(f"{what}: {value}")
