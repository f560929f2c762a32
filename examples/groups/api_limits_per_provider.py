"""Use case: each external API is a group with 2 at once and 30 per minute; and one of them with numbers of its own."""

import asyncio
from collections import Counter

from paceline import App, Concurrency, Rate
from paceline.testing import virtual_time


async def main() -> dict[str | None, int]:
    """Starts in the first minute, of 100 for each provider."""
    async with virtual_time() as time:
        app = App(time.store)
        app.limit(
            "provider",
            Concurrency(2) & Rate(30, per="1m"),
            queues=["api-calls"],
            by="group",
            overrides={"stripe": Concurrency(2) & Rate(45, per="1m")},  # the original has one number for all
        )

        @app.task(queue="api-calls")
        async def fetch(path: str) -> None: ...

        for provider in ("github", "stripe"):
            await fetch.using(group=provider).enqueue_many([(f"/{number}",) for number in range(100)])
        async with app.worker():
            await time.advance("59s")
        return dict(Counter(start.group for start in time.starts()))


if __name__ == "__main__":
    print(asyncio.run(main()))
