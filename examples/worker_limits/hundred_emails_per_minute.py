"""At most 100 jobs per minute on a worker: `limiter: { max: 100, duration: 60_000 }`."""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> list[int]:
    async with virtual_time() as time:
        queue = Queue("emails", store=time.store)
        mails = [("send", {"to": f"user-{number}@example.org", "subject": "Hi"}) for number in range(250)]
        await queue.add_many(mails)

        async def send_email(job: Job[str]) -> str:
            return f"{job.data['subject']} to {job.data['to']}"

        started = []
        async with Worker("emails", send_email, store=time.store, limiter=Rate("100/min")):
            for _ in range(3):
                await time.advance("59s")
                started.append(len(time.starts()))
                await time.advance("1s")
        return started


if __name__ == "__main__":
    print("started after each minute:", asyncio.run(main()))
