"""A strategy of your own: any object with the six methods slots in, alone or beside others in a `CompositeLimiter`."""

import asyncio
from datetime import datetime, timedelta

from paceline import CompositeLimiter, Delay, Job, Limiter, LimiterProtocol, Queue, Worker
from paceline.testing import VirtualTime, virtual_time


class OfficeHours:
    """Starts jobs from 9:00 to 17:00 only."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.running = 0

    async def can_proceed(self) -> bool:
        return 9 <= self.time.now().hour < 17

    async def record_job_start(self) -> None:
        self.running += 1

    async def record_job_completion(self) -> None:
        self.running -= 1

    async def get_next_available_time(self) -> datetime:
        now = self.time.now()
        opens = now.replace(hour=9, minute=0, second=0, microsecond=0)
        return now if await self.can_proceed() else opens if now < opens else opens + timedelta(days=1)

    async def set_next_available_time(self, when: datetime) -> None: ...

    async def clear(self) -> None: ...


async def main() -> tuple[list[str], int]:
    """Ten calls, at least an hour apart, added at 7:30; and how many still run at the end."""
    async with virtual_time() as time:
        await time.advance("7h30m")
        hours: LimiterProtocol = OfficeHours(time)
        limiter = CompositeLimiter([hours, Limiter("calm", Delay("1h"), store=time.store)])
        queue = Queue("calls", store=time.store)
        await queue.add_many([("call", number) for number in range(10)])

        async def call(job: Job[None]) -> None:
            await time.sleep("10m")

        async with Worker("calls", call, store=time.store, concurrency=10, limiter=limiter):
            await time.advance("28h")
        assert isinstance(hours, OfficeHours)
        return [f"{start.at:%d %H:%M}" for start in time.starts()], hours.running


if __name__ == "__main__":
    print(*asyncio.run(main()), sep="\n")
