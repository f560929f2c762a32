"""A type whose limit is full stops nobody: its jobs are passed over where they are, and the worker goes on at once.

The lesson's worker takes such a job, puts it back 5 seconds later and sleeps a second. Here nothing is taken, moved or
slept for, so a job behind 1,000 limited ones starts in the instant it is added.
"""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time


async def main() -> tuple[list[float], list[float]]:
    """When webhooks started, and when the report did, in seconds."""
    async with virtual_time() as time:
        began = time.now()
        app = App(time.store)
        app.limit("webhooks", Rate(1, per="1m"), tasks=["send_webhook"])

        @app.task()
        async def send_webhook(number: int) -> None: ...

        @app.task()
        async def make_report() -> None: ...

        await send_webhook.enqueue_many([(number,) for number in range(1000)])
        async with app.worker(concurrency=1):
            await time.advance("10s")
            await make_report.enqueue()
            await time.advance("50s")

        def seconds(task: str) -> list[float]:
            return [(start.at - began).total_seconds() for start in time.starts(task)]

        return seconds("send_webhook"), seconds("make_report")


if __name__ == "__main__":
    webhooks, reports = asyncio.run(main())
    print(f"webhooks at {webhooks}, the report at {reports}")
