"""Exercise 1: a limit of 5 per minute, 20 jobs: exactly 5 run in the first minute. Runs in milliseconds."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time


async def main() -> None:
    async with virtual_time() as time:
        app = App(time.store)
        app.limit("webhook", Rate(5, per="1m"), tasks=["send_webhook"])

        @app.task()
        async def send_webhook(number: int) -> None: ...

        await send_webhook.enqueue_many([(number,) for number in range(20)])
        async with app.worker():
            for minute, expected in enumerate([5, 10, 15, 20], 1):
                await time.advance("59s")
                assert len(time.starts()) == expected
                await time.advance("1s")
                print(f"minute {minute}: {expected} started")


asyncio.run(main())
