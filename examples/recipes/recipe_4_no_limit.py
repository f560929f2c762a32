"""Recipe 4: no limit, for local work. Eight workers, and only their slots say how much runs at once."""

import asyncio

from paceline import App
from paceline.testing import virtual_time


async def main() -> tuple[int, int]:
    """The most at once, and how many ended within two seconds."""
    running = most = done = 0
    async with virtual_time() as time:
        app = App(time.store)

        @app.task(queue="local-compute")
        async def compute(number: int) -> int:
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await time.sleep("1s")
            running -= 1
            done += 1
            return number**2

        await compute.enqueue_many([(number,) for number in range(100)])
        async with app.worker(workers=8):  # ten slots each
            await time.advance("2s")
    return most, done


if __name__ == "__main__":
    print(asyncio.run(main()))
