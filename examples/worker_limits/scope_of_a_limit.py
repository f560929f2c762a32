"""Where a limit stands says for whom it counts: on a worker for that worker, on the queue for all workers together."""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> dict[str, int]:
    return {
        "1 worker, limiter 10/s": await started_in_a_second(workers=1, limiter=Rate(10, per="1s")),
        "3 workers, limiter 10/s each": await started_in_a_second(workers=3, limiter=Rate(10, per="1s")),
        "3 workers, limiter 3/s each": await started_in_a_second(workers=3, limiter=Rate(3, per="1s")),
        "1 worker, queue limit 10/s": await started_in_a_second(workers=1, queue_limit=Rate(10, per="1s")),
        "3 workers, queue limit 10/s": await started_in_a_second(workers=3, queue_limit=Rate(10, per="1s")),
    }


async def started_in_a_second(workers: int, limiter: Rate | None = None, queue_limit: Rate | None = None) -> int:
    async with virtual_time() as time:
        queue = Queue("calls", store=time.store, limits=[queue_limit] if queue_limit else [])
        await queue.add_many([("call", None)] * 100)

        async def call(job: Job[None]) -> None: ...

        crew = [Worker("calls", call, store=time.store, limiter=limiter) for _ in range(workers)]
        running = [asyncio.create_task(worker.run()) for worker in crew]
        await time.advance("999ms")
        await asyncio.gather(*(worker.stop() for worker in crew), *running)
        return len(time.starts())


if __name__ == "__main__":
    for scenario, started in asyncio.run(main()).items():
        print(f"{scenario:<30} {started} per second")
