"""The worker loop: `canProceed`, claim, `recordJobStart`, run, `finally recordJobCompletion`.

With the six methods it can be written as in the original; then several loops may pass the question before one of them
counts. `acquire()` is the question and the count in one step, and gives the slot back at the end, whatever happens.
"""

import asyncio

from paceline import Concurrency, Limiter
from paceline.testing import virtual_time


async def main() -> tuple[int, int]:
    """A limit of 1 and four loops: the most that ran at once, in steps and at once."""
    return await most_at_once(in_one_step=False), await most_at_once(in_one_step=True)


async def most_at_once(*, in_one_step: bool) -> int:
    running = most = 0
    async with virtual_time() as time:
        limiter = Limiter("gpu", Concurrency(1), store=time.store)

        async def execute() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await time.sleep("1s")
            running -= 1

        async def loop_in_steps() -> None:
            while not await limiter.can_proceed():
                await time.sleep("100ms")
            await asyncio.sleep(0)  # storage.next(worker_id): others ask meanwhile
            await limiter.record_job_start()
            try:
                await execute()
            finally:
                await limiter.record_job_completion()

        async def loop_in_one_step() -> None:
            async with limiter.acquire():  # waits exactly as long as needed
                await execute()

        loop = loop_in_one_step if in_one_step else loop_in_steps
        loops = [asyncio.create_task(loop()) for _ in range(4)]
        await time.advance("10s")
        await asyncio.gather(*loops)
    return most


if __name__ == "__main__":
    in_steps, at_once = asyncio.run(main())
    print(f"limit 1: {in_steps} ran at once when asked first and counted later, {at_once} with acquire()")
