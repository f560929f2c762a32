"""`JobRateLimiter`: `can_process` and `record` for each type, and why asking and counting should be one step."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time


class JobRateLimiter:
    """The lesson's class on named limits: one window per type, in the store instead of one process's memory."""

    def __init__(self, app: App, limits: dict[str, int]) -> None:
        self.of = {type: app.limiter(type, Rate(maximum, per="1m")) for type, maximum in limits.items()}

    async def can_process(self, type: str) -> bool:
        return await self.of[type].can_proceed()

    async def record(self, type: str) -> None:
        await self.of[type].record_job_start()

    async def may_start(self, type: str) -> bool:
        """Both in one step: nobody comes in between."""
        return await self.of[type].try_acquire() is not None


async def main() -> tuple[int, int]:
    """Ten callers that come at once, limit 5: how many pass when asking and counting are two steps, or one."""
    async with virtual_time() as time:
        limiter = JobRateLimiter(App(time.store), {"in_two_steps": 5, "in_one_step": 5})

        async def two_steps() -> bool:
            allowed = await limiter.can_process("in_two_steps")
            await asyncio.sleep(0)  # the job runs; it is counted when it is done, as in the lesson
            if allowed:
                await limiter.record("in_two_steps")
            return allowed

        in_two = await asyncio.gather(*(two_steps() for _ in range(10)))
        in_one = await asyncio.gather(*(limiter.may_start("in_one_step") for _ in range(10)))
        return sum(in_two), sum(in_one)


if __name__ == "__main__":
    in_two, in_one = asyncio.run(main())
    print(f"5 allowed; asked first and counted later: {in_two} start; in one step: {in_one} start")
