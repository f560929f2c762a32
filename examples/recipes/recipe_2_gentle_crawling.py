"""Recipe 2: gentle crawling. Ten pages a minute, evenly spaced, and never two within half a second."""

import asyncio

from paceline import App, Delay, EvenlySpaced
from paceline.testing import virtual_time


async def main() -> dict[str, list[float]]:
    """The starts in seconds, for pages that answer at once and for pages that take 20 seconds."""
    return {takes: await crawl(takes) for takes in ("10ms", "20s")}


async def crawl(takes: str) -> list[float]:
    async with virtual_time() as time:
        began = time.now()
        app = App(time.store)
        app.limit("crawl", EvenlySpaced(10, per="1m") & Delay("500ms"), tasks=["fetch"])

        @app.task()
        async def fetch(url: str) -> None:
            await time.sleep(takes)

        await fetch.enqueue_many([(f"https://example.org/{page}",) for page in range(6)])
        async with app.worker():
            await time.advance("1m")
        return [(start.at - began).total_seconds() for start in time.starts()]


if __name__ == "__main__":
    for takes, starts in asyncio.run(main()).items():
        print(f"pages that take {takes}: {starts}")
