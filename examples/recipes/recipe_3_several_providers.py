"""Recipe 3: several providers. A queue for each, with its own limits and its own workers."""

import asyncio
from collections import Counter

from paceline import App, Concurrency, Rate
from paceline.testing import virtual_time


async def main() -> dict[str, tuple[int, int]]:
    """For each provider the most at once and the starts of the first minute."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    async with virtual_time() as time:
        app = App(time.store)
        app.queue("openai", limits=[Concurrency(10) & Rate(500, per="1m")])
        app.queue("ollama", limits=[Concurrency(2)])  # a local GPU: only concurrency

        async def call(provider: str, seconds: float) -> None:
            running[provider] += 1
            most[provider] = max(most[provider], running[provider])
            await time.sleep(seconds)
            running[provider] -= 1

        openai = app.task(name="openai", queue="openai")(call)
        ollama = app.task(name="ollama", queue="ollama")(call)
        await openai.enqueue_many([("openai", 1)] * 600)
        await ollama.enqueue_many([("ollama", 10)] * 100)
        # Four workers of ten slots for the one, one for the other; in production these are two commands.
        async with app.worker(queues=["openai"], workers=4), app.worker(queues=["ollama"]):
            await time.advance("59s")
            return {provider: (most[provider], len(time.starts(provider))) for provider in ("openai", "ollama")}


if __name__ == "__main__":
    for provider, (most, started) in asyncio.run(main()).items():
        print(f"{provider}: {most} at once, {started} in the first minute")
