"""Exercise 2: two job types with two limits; each keeps its own, neither delays the other."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time


async def main() -> list[dict[str, int]]:
    """How many of each type have started just before the end of each minute."""
    async with virtual_time() as time:
        app = App(time.store)
        app.limit("webhooks", Rate(30, per="1m"), tasks=["send_webhook"])
        app.limit("emails", Rate(120, per="1m"), tasks=["send_email"])

        @app.task()
        async def send_webhook(number: int) -> None: ...

        @app.task()
        async def send_email(number: int) -> None: ...

        await send_webhook.enqueue_many([(number,) for number in range(300)])
        await send_email.enqueue_many([(number,) for number in range(300)])
        started = []
        async with app.worker():
            for _ in range(3):
                await time.advance("59s")
                started.append({task: len(time.starts(task)) for task in app.tasks})
                await time.advance("1s")
        return started


if __name__ == "__main__":
    for minute, started in enumerate(asyncio.run(main()), 1):
        print(f"minute {minute}: {started}")
