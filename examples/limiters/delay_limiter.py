"""`DelayLimiter(200)`: at least 200 ms between two starts. The default is 50 ms."""

import asyncio

from paceline import Delay, Job, Queue, Worker
from paceline.testing import virtual_time


async def main() -> tuple[list[int], Delay]:
    """The starts in milliseconds: two workers share the queue's gap."""
    async with virtual_time() as time:
        began = time.now()
        queue = Queue("pings", store=time.store, limits=[Delay("200ms")])
        await queue.add_many([("ping", None)] * 6)

        async def ping(job: Job[None]) -> None: ...

        async with Worker("pings", ping, store=time.store), Worker("pings", ping, store=time.store):
            await time.advance("2s")
        return [round((start.at - began).total_seconds() * 1000) for start in time.starts()], Delay()


if __name__ == "__main__":
    print(*asyncio.run(main()))
