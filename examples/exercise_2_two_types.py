"""Exercise 2: two job types with two limits; each keeps its own, neither delays the other."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time


async def main() -> None:
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
        async with app.worker():
            await time.advance("59s")
            assert len(time.starts("send_webhook")) == 30
            assert len(time.starts("send_email")) == 120
            print("first minute: 30 webhooks, 120 emails")


asyncio.run(main())
