"""Use case: at most 10 videos of one user wait to be rendered; the next one is refused until one has started."""

import asyncio

from paceline import Group, GroupFull, Job, Queue, Worker
from paceline.testing import virtual_time


async def main() -> list[str]:
    said = []
    async with virtual_time() as time:
        queue = Queue("videos", store=time.store)

        async def upload(user_id: int, video: str) -> None:
            group = Group(f"user-{user_id}", max_size=10)
            try:
                await queue.add("render", {"video": video}, group=group)
                said.append(f"user {user_id}: accepted")
            except GroupFull as full:
                said.append(f"user {user_id}: {full.size} of {full.max_size} wait already, please try later")

        for number in range(11):
            await upload(7, f"cat-{number}.mp4")
        await upload(8, "dog.mp4")  # another user is not concerned

        async def render(job: Job[None]) -> None:
            await time.sleep("1m")

        async with Worker("videos", render, store=time.store):
            await time.advance("1s")  # the first video has started
            await upload(7, "cat-11.mp4")
    return said[9:]


if __name__ == "__main__":
    print("\n".join(asyncio.run(main())))
