"""At most 10 jobs per second on a worker: `limiter: { max: 10, duration: 1_000 }`."""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> list[int]:
    async with virtual_time() as time:
        queue = Queue("api-calls", store=time.store)
        await queue.add_many([("call", {"page": page}) for page in range(35)])

        async def call_external_api(job: Job[None]) -> None: ...

        started = []
        async with Worker("api-calls", call_external_api, store=time.store, limiter=Rate(10, per="1s")):
            for _ in range(4):
                await time.advance("999ms")
                started.append(len(time.starts()))
                await time.advance("1ms")
        return started


if __name__ == "__main__":
    print("started after each second:", asyncio.run(main()))
