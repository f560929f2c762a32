"""A group takes no more jobs than `max_size`: the check is part of the insert, also for many adders and in bulk."""

import asyncio
from contextlib import suppress

from paceline import Group, GroupFull, Queue
from paceline.testing import virtual_time

TENANT = Group("tenant-1", max_size=10)


async def main() -> tuple[int, str, int]:
    """How many of 50 adders at once were accepted, what the others were told, and what a bulk of 4 left behind."""
    async with virtual_time() as time:
        queue = Queue("tasks", store=time.store)
        answers = await asyncio.gather(
            *(queue.add("task", {"n": n}, group=TENANT) for n in range(50)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, GroupFull)]

        other = Group("tenant-2", max_size=3)
        with suppress(GroupFull):  # all or nothing: none of the four is added
            await queue.add_many([("task", {"n": n}, {"group": other}) for n in range(4)])
        return len(answers) - len(refused), str(refused[0]), len(await queue.list(group="tenant-2"))


if __name__ == "__main__":
    for line in asyncio.run(main()):
        print(line)
