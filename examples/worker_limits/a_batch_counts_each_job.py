"""A batch of 10 counts 10 against the limiter: a batch is as large as the limit allows now."""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> list[int]:
    """The sizes of the batches: 25 a second, ten at a time."""
    sizes: list[int] = []
    async with virtual_time() as time:
        queue = Queue("imports", store=time.store)
        await queue.add_many([("row", number) for number in range(60)])

        async def insert_rows(jobs: list[Job[None]]) -> None:
            sizes.append(len(jobs))

        async with Worker("imports", insert_rows, store=time.store, batch=10, limiter=Rate(25, per="1s")):
            await time.advance("3s")
    return sizes


if __name__ == "__main__":
    print(asyncio.run(main()))
