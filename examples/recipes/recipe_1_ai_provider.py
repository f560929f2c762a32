"""Recipe 1: an AI provider. Five requests in flight, 50 per minute, and a longer pause after each refusal."""

import asyncio
from collections import Counter

from paceline import App, Backoff, Concurrency, Rate
from paceline.testing import virtual_time


async def main() -> tuple[int, list[int]]:
    """The most in flight, and the starts of each minute; a request takes two seconds."""
    in_flight = most = 0
    async with virtual_time() as time:
        began = time.now()
        app = App(time.store)
        app.limit(
            "anthropic",
            Concurrency(5) & Rate(50, per="1m"),
            tasks=["summarise", "translate"],  # whatever calls the provider
            backoff=Backoff(initial="2s", multiplier=2, maximum="2m"),
        )

        async def request(text: str) -> None:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await time.sleep("2s")
            in_flight -= 1

        summarise = app.task(name="summarise")(request)
        translate = app.task(name="translate")(request)
        await summarise.enqueue_many([(f"text {number}",) for number in range(60)])
        await translate.enqueue_many([(f"text {number}",) for number in range(60)])

        async with app.worker(concurrency=20):
            await time.advance("3m")
        minutes = Counter(int((start.at - began).total_seconds() // 60) for start in time.starts())
    return most, [minutes[minute] for minute in range(3)]


if __name__ == "__main__":
    most, minutes = asyncio.run(main())
    print(f"{most} in flight; starts per minute: {minutes}")
