"""A limit defers nothing: what may not start stays `waiting`, uses no attempt, and starts when the window opens."""

import asyncio

from paceline import Job, Queue, Rate, Worker
from paceline.testing import virtual_time


async def main() -> tuple[dict[str, int], int, str]:
    async with virtual_time() as time:
        queue = Queue("api-calls", store=time.store, limits=[Rate(2, per="1m")])
        jobs = await queue.add_many([("call", None)] * 5)

        async def call(job: Job[None]) -> None: ...

        async with Worker("api-calls", call, store=time.store):
            await time.advance("10s")
            counts = await queue.counts()
            last = await jobs[4].refresh()
            # The second window takes jobs 3 and 4, the third one takes job 5: at 2m, in 1m50s.
            why = str(await last.explain()).replace(last.id, "…")
        return counts, last.attempts_made, why


if __name__ == "__main__":
    for line in asyncio.run(main()):
        print(line)
