"""Jobs of three tenants: `{ group: { id: 'tenant-1' } }`. Groups take turns, whoever came first."""

import asyncio

from paceline import Group, Job, Queue, Worker
from paceline.testing import virtual_time


async def main() -> list[str | None]:
    async with virtual_time() as time:
        queue = Queue("tasks", store=time.store)
        for number in range(100):
            await queue.add("process", {"number": number}, group="tenant-1")
        await queue.add("process", {"number": 100}, group=Group("tenant-2"))  # the same as text
        await queue.add("process", {"number": 101}, group="tenant-3")
        await queue.add("process", {"number": 102}, group="tenant-3")

        async def process(job: Job[None]) -> None: ...

        async with Worker("tasks", process, store=time.store):
            await time.advance("1s")
        return [start.group for start in time.starts()][:7]


if __name__ == "__main__":
    print(asyncio.run(main()))
