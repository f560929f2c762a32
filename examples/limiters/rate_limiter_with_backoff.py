"""`RateLimiter(storage, "openai-embeddings", {…})`: 100 per minute, and a backoff that refusals from outside make grow.

`maxExecutions` and `windowSizeInSeconds` are the `Rate`; `initialBackoffDelay`, `backoffMultiplier` and
`maxBackoffDelay` are the `Backoff`, with the same defaults. A full window needs no backoff: its next free instant is
known. The backoff is for what nobody knows: how long a service that said 429 without a time wants to be left alone.
"""

import asyncio
from itertools import pairwise

from paceline import App, Backoff, Rate, RateLimited
from paceline.testing import virtual_time


async def main() -> tuple[int, list[float]]:
    """Starts in the first minute; then the waits while the service refuses: 1 to 2 s, 2 to 4 s, … 10 to 20 min."""
    async with virtual_time() as time:
        app = App(time.store)
        app.limit(
            "openai-embeddings",
            Rate(100, per="60s"),
            tasks=["embed"],
            backoff=Backoff(initial="1s", multiplier=2, maximum="10m"),
        )
        refuses = False

        @app.task()
        async def embed(number: int) -> None:
            if refuses:
                raise RateLimited  # 429, and no word about the time

        await embed.enqueue_many([(number,) for number in range(150)])
        async with app.worker():
            await time.advance("59s")
            first_minute = len(time.starts())
            await time.advance("2m")

            refuses = True
            await embed.enqueue(150)
            await time.advance("2h")
        tries = [start.at for start in time.starts()[150:]]
        return first_minute, [(later - earlier).total_seconds() for earlier, later in pairwise(tries)]


if __name__ == "__main__":
    started, waits = asyncio.run(main())
    print(f"{started} in the first minute; waits: {', '.join(f'{wait:.1f}' for wait in waits)} s")
