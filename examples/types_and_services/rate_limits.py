"""`RATE_LIMITS`: a limit for each job type, independent of each other."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time

RATE_LIMITS = {
    "send_webhook": 30,  # 30 webhooks per minute
    "sync_inventory": 60,  # 60 syncs per minute
    "send_email": 120,  # 120 emails per minute
}


async def main() -> dict[str, int]:
    """How many of 200 jobs of each type start in the first minute; a type that is not in the table is not limited."""
    async with virtual_time() as time:
        app = App(time.store)
        for name, per_minute in RATE_LIMITS.items():
            app.limit(name, Rate(per_minute, per="1m"), tasks=[name])

        async def work(number: int) -> None: ...

        for name in (*RATE_LIMITS, "make_report"):
            task = app.task(name=name)(work)
            await task.enqueue_many([(number,) for number in range(200)])

        async with app.worker():
            await time.advance("59s")
            return {name: len(time.starts(name)) for name in app.tasks}


if __name__ == "__main__":
    print(asyncio.run(main()))
