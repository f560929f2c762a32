"""Up to 5 jobs at once, and no more than 20 started per second: `concurrency: 5` with `limiter: { max: 20, … }`."""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> dict[str, tuple[int, int]]:
    """For quick and for slow webhooks: the most at once, and the starts of the first second."""
    return {"quick": await deliver_all("100ms"), "slow": await deliver_all("500ms")}


async def deliver_all(takes: str) -> tuple[int, int]:
    running = most = 0
    async with virtual_time() as time:
        queue = Queue("webhooks", store=time.store)
        await queue.add_many([("deliver", {"url": "https://example.org/hook"})] * 60)

        async def post_webhook(job: Job[None]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await time.sleep(takes)
            running -= 1

        async with Worker("webhooks", post_webhook, store=time.store, concurrency=5, limiter=Rate(20, per="1s")):
            await time.advance("999ms")
            in_first_second = len(time.starts())
            await time.advance("10s")
    return most, in_first_second


if __name__ == "__main__":
    for speed, (most, started) in asyncio.run(main()).items():
        print(f"{speed}: {most} at once, {started} started in the first second")
