"""`new JobQueueServer(MyJob, { storage, queueName, limiter, workerCount: 3 })`: three workers under one limiter."""

import asyncio

from paceline import App, CompositeLimiter, Concurrency, EvenlySpaced
from paceline.testing import virtual_time


async def main() -> tuple[int, list[float]]:
    """The most at once, and the starts in seconds: every two seconds, and never more than three running."""
    running = most = 0
    async with virtual_time() as time:
        began = time.now()
        app = App(time.store)
        limiter = CompositeLimiter(
            [
                app.limiter("my-slots", Concurrency(3)),
                app.limiter("my-pace", EvenlySpaced(30, per="60s")),
            ]
        )

        @app.task(queue="my-queue")
        async def my_job(number: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await time.sleep("7s")
            running -= 1

        await my_job.enqueue_many([(number,) for number in range(6)])
        async with app.worker(queues=["my-queue"], workers=3, limiter=limiter):
            await time.advance("1m")
        return most, [(start.at - began).total_seconds() for start in time.starts()]


if __name__ == "__main__":
    print(asyncio.run(main()))
