"""`NullLimiter`: no restriction, and the default when none is given. `Unlimited()` as a kind."""

import asyncio
from datetime import timedelta

from paceline import App, Unlimited
from paceline.testing import virtual_time


async def main() -> tuple[bool, bool, bool]:
    async with virtual_time() as time:
        limiter = App(time.store).limiter("free", Unlimited())
        for _ in range(1000):
            await limiter.record_job_start()
        after_a_thousand = await limiter.can_proceed()

        await limiter.set_next_available_time(time.now() + timedelta(hours=1))  # does nothing
        return after_a_thousand, await limiter.can_proceed(), await limiter.get_next_available_time() == time.now()


if __name__ == "__main__":
    print("always free:", asyncio.run(main()))
