"""A retry that names no date: the job is due when its limits next have room, instead of `getNextAvailableTime()`."""

import asyncio

from paceline import App, Rate, Retry
from paceline.testing import virtual_time


async def main() -> tuple[list[float], int]:
    """When it was tried, and how many attempts it took; its first try and another job took the minute's two starts."""
    async with virtual_time() as time:
        began = time.now()
        app = App(time.store)
        app.limit("api", Rate(2, per="1m"), tasks=["call"])
        answers = iter(["busy", "ok", "ok"])

        @app.task(attempts=3)
        async def call(number: int) -> None:
            if next(answers) == "busy":
                raise Retry

        first, _ = await call.enqueue_many([(0,), (1,)])
        async with app.worker(concurrency=2):
            await time.advance("2m")
        tries = [(start.at - began).total_seconds() for start in time.starts() if start.job_id == first.id]
        return tries, (await first.refresh()).attempts_made


if __name__ == "__main__":
    print(asyncio.run(main()))
