"""What somebody does who shares nothing with the sleepers of a test but the store, in a process of its own.

`python elsewhere.py` reads one deed per line, `{"url": …, "namespace": …, "deed": …, "with": {…}}`, and answers each
with the instant at which it began, on the monotonic clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from typing import Any

from paceline import codec
from paceline.errors import StoreUnavailable
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask, Finish, Hold, Outcome, Override, Store, Target

HOUR = 3_600_000_000


class Deeds:
    """What can be done on one store; jobs that were taken are kept by their queue until they end."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._taken: dict[str, JobRecord] = {}

    async def add(self, queue: str, job: str, **options: Any) -> None:
        await self.store.insert([NewJob(job, queue, "work", **options)])

    async def take(self, queue: str) -> None:
        """Start a job, as a worker does."""
        answer = await self.store.claim(Ask(queues=(queue,), slots=1, worker="elsewhere", lease=HOUR))
        (self._taken[queue],) = answer.jobs

    async def end(self, queue: str, outcome: str = "completed") -> None:
        """End the job that was taken."""
        job = self._taken.pop(queue)
        end = Finish(id=job.id, fence=job.fence, outcome=Outcome(outcome), result=codec.encode(None), error="")
        assert await self.store.finish([end]) == []

    async def move(self, job: str, move: str) -> None:
        await self.store.move([job], Move(move))

    async def move_all(self, queue: str, state: str, move: str) -> None:
        assert await self.store.move_all(queue, JobState(state), Move(move)) == 1

    async def pause(self, queue: str, paused: bool, task: str | None = None, group: str | None = None) -> None:
        await self.store.pause(queue, task, group, paused)

    async def hold(self, limit: str) -> None:
        await self.store.hold([Hold(limit=limit, for_=HOUR)])

    async def release(self, limit: str) -> None:
        await self.store.release(limit, None)

    async def override(self, limit: str, most: int) -> None:
        await self.store.override(Override(limit=limit, kind=Rate(most, per="1h")), None)

    async def lift(self, limit: str) -> None:
        await self.store.lift(limit, None)

    async def declare(self, limit: str, queue: str, most: int) -> None:
        await self.store.set_limits([Limit(limit, Rate(most, per="1h"), queues=[queue])])

    async def drop(self, limit: str) -> None:
        await self.store.drop_limit(limit)

    async def clear(self, limit: str) -> None:
        await self.store.clear(limit, None)

    async def take_permit(self, limit: str) -> None:
        assert (await self.store.acquire([Target(limit)], f"{limit} permit", HOUR)).granted

    async def give_back(self, limit: str) -> None:
        await self.store.give_back([f"{limit} permit"])

    async def find_the_server(self) -> None:
        """Ask until it answers: connections that it lost are replaced then."""
        for _ in range(100):
            try:
                await self.store.counts("line")
                return
            except StoreUnavailable:
                await asyncio.sleep(0.1)
        raise AssertionError("the server does not answer")

    async def close(self) -> None:
        await self.store.close()


async def do(deeds: Deeds, deed: str, words: dict[str, Any]) -> float:
    """Do one thing; gives the instant at which it began."""
    began = time.monotonic()
    await getattr(deeds, deed)(**words)
    return began


async def serve() -> None:
    """Do what is asked, one thing after the other, until nobody asks any more."""
    known: dict[tuple[str, str], Deeds] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        where = order["url"], order["namespace"]
        try:
            if where not in known:
                known[where] = Deeds(open_store(where[0], namespace=where[1]))
            answer: dict[str, Any] = {"began": await do(known[where], order["deed"], order["with"])}
            if order["deed"] == "close":
                del known[where]
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
