"""There is no reset point: every window of one second holds at most 10 starts, wherever it begins.

One job at 0.0 s and 19 more at 0.9 s. A window that is reset at 1.0 s would start all 19 within a tenth of a second.
"""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> list[float]:
    async with virtual_time() as time:
        began = time.now()
        queue = Queue("api-calls", store=time.store)

        async def call(job: Job[None]) -> None: ...

        async with Worker("api-calls", call, store=time.store, limiter=Rate(10, per="1s")):
            await queue.add_many([("call", None)])
            await time.advance("900ms")
            await queue.add_many([("call", None)] * 19)
            await time.advance("2s")
        return [(start.at - began).total_seconds() for start in time.starts()]


if __name__ == "__main__":
    print(asyncio.run(main()))
