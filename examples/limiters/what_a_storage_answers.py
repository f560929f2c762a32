"""`IRateLimiterStorage`: each of its seven methods is a public call here, on every store."""

import asyncio
from datetime import timedelta

from paceline import App, Job, Rate, Worker
from paceline.testing import virtual_time


async def main() -> dict[str, object]:
    async with virtual_time() as time:
        app = App(time.store)
        queue = app.queue("openai", limits=[Rate(100, per="60s")])  # the limit "queue:openai"
        limiter = app.limiter("queue:openai")
        seen: dict[str, object] = {}

        # setupDatabase(): the first call does it. recordExecution(queueName): a claim does it; for code of your own:
        await limiter.record_job_start()

        await queue.add_many([("embed", number) for number in range(3)])

        async def embed(job: Job[None]) -> None: ...

        async with Worker("openai", embed, store=time.store):
            await time.advance("1s")

        # getExecutionCount(queueName, windowStartTime):
        seen["in the window"] = (await app.limit_state("queue:openai")).used
        seen["jobs since a second ago"] = len(await queue.starts(since=time.now() - timedelta(seconds=1)))

        # getOldestExecutionAtOffset(queueName, offset):
        third = (await queue.starts())[2]
        seen["third start"] = str(time.now() - third.at) + " ago"

        # setNextAvailableTime(queueName, nextAvailableAt) and getNextAvailableTime(queueName):
        await app.hold("queue:openai", for_="30s", reason="the service asked for it")
        held = (await app.limit_state("queue:openai")).held_until
        seen["held for"] = str(held and held - time.now())

        # clear(queueName):
        await limiter.clear()
        state = await app.limit_state("queue:openai")
        seen["after clear"] = (state.used, state.held_until)
        return seen


if __name__ == "__main__":
    for what, value in asyncio.run(main()).items():
        print(f"{what}: {value}")
