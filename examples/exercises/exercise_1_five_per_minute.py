"""Exercise 1: a limit of 5 per minute, 20 jobs: exactly 5 run in the first minute. Runs in milliseconds."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time


async def main() -> list[int]:
    """How many have started just before the end of each minute."""
    async with virtual_time() as time:
        app = App(time.store)
        app.limit("webhook", Rate(5, per="1m"), tasks=["send_webhook"])

        @app.task()
        async def send_webhook(number: int) -> None: ...

        await send_webhook.enqueue_many([(number,) for number in range(20)])
        started = []
        async with app.worker():
            for _ in range(4):
                await time.advance("59s")
                started.append(len(time.starts()))
                await time.advance("1s")
        return started


if __name__ == "__main__":
    for minute, started in enumerate(asyncio.run(main()), 1):
        print(f"minute {minute}: {started} started")
