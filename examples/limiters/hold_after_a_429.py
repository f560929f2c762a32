"""`limiter.setNextAvailableTime(date)` after a 429 with Retry-After: nobody starts before that time.

A handler raises `RateLimited`: the limit is held for all workers, the job goes back to its place and uses no attempt.
Room in the window does not end a hold, and an earlier time does not shorten it.
"""

import asyncio

from paceline import App, Rate, RateLimited
from paceline.testing import virtual_time


async def main() -> tuple[list[float], int, str | None]:
    """All starts in seconds, the attempts of the refused job, and what `explain` says of another one meanwhile."""
    async with virtual_time() as time:
        began = time.now()
        app = App(time.store)
        app.limit("api", Rate(100, per="1m"), tasks=["call"])
        refused = [True]

        @app.task()
        async def call(number: int) -> None:
            if refused.pop() if refused else False:
                raise RateLimited.from_response(429, {"Retry-After": "30"})

        first = await call.enqueue(0)
        async with app.worker(), app.worker():
            await time.advance("10s")
            second = await call.enqueue(1)
            await app.hold("api", for_="5s")  # earlier than what holds already: ignored
            why = await second.explain()
            await time.advance("1m")
        starts = [(start.at - began).total_seconds() for start in time.starts()]
        return starts, (await first.refresh()).attempts_made, str(why).partition(": ")[2]


if __name__ == "__main__":
    print(*asyncio.run(main()), sep="\n")
