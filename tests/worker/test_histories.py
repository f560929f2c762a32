"""Random histories: whatever handlers, operators and dying workers do, no job is lost and no limit is broken."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from paceline import Concurrency, Fail, Limit, MoveNotAllowed, Queue, Rate, RateLimited, Retry, Worker
from paceline.stores.interface import Ask
from paceline.testing import VirtualTime, virtual_time

from .helpers import add, after, fullest_window, nothing, soon, states

SERVICE = Limit("service", Rate(6, per="2s") & Concurrency(4), tasks=["send"])
TENANT = Limit("tenant", Rate(4, per="3s") & Concurrency(2), by="group")
GROUPS = ("a", "b", "c", None)


class Chaos:
    """Jobs that end in every way there is, and somebody who cancels, stops, starts and kills at random."""

    def __init__(self, time: VirtualTime, seed: int) -> None:
        self.time = time
        self.dice = random.Random(seed)
        self.queue = Queue("line", store=time.store, limits=[SERVICE, TENANT])
        self.jobs = []
        self.running: Counter[object] = Counter()
        self.most: Counter[object] = Counter()
        self.workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def handler(self, job):
        for key in ("service", job.group):
            self.running[key] += 1
            self.most[key] = max(self.most[key], self.running[key])
        try:
            await self.time.sleep(self.dice.choice([0, 0, "200ms", "1.5s", "20s"]))
            verdict = self.dice.choice([None, None, None, OSError("down"), Fail("no"), Retry(after="1s"), Retry()])
            if self.dice.random() < 0.1:
                verdict = RateLimited(retry_after=self.dice.choice(["1s", "3s"]))
            if verdict is not None:
                raise verdict
        finally:
            for key in ("service", job.group):
                self.running[key] -= 1

    async def add(self) -> None:
        dice = self.dice
        for _ in range(dice.randint(1, 12)):
            options = {
                "group": dice.choice(GROUPS),
                "attempts": dice.randint(1, 3),
                "retry_delay": dice.choice([None, "500ms"]),
                "timeout": dice.choice([None, None, "1s"]),
                "delay": dice.choice([None, None, "700ms"]),
                "priority": dice.randint(-1, 1),
                "lifo": dice.random() < 0.2,
            }
            self.jobs.append(await self.queue.add("send", **options))

    async def start(self) -> None:
        worker = Worker("line", self.handler, store=self.time.store, concurrency=self.dice.randint(1, 6), lease="4s")
        self.workers.append((worker, asyncio.create_task(worker.run())))

    async def stop(self) -> None:
        if self.workers:
            worker, task = self.workers.pop(self.dice.randrange(len(self.workers)))
            await worker.stop(grace=0)
            await task

    async def cancel(self) -> None:
        if self.jobs:
            try:
                await self.dice.choice(self.jobs).cancel()
            except MoveNotAllowed:
                # It had ended: cancelling changes nothing then.
                return

    async def die(self) -> None:
        ask = Ask(queues=("line",), slots=1, worker=f"dead-{self.dice.random()}", lease=2_000_000)
        await self.time.store.claim(ask)

    async def pause(self) -> None:
        part = self.dice.choice([{}, {"task": "send"}, {"group": "a"}])
        await self.queue.pause(**part)
        await self.time.advance("300ms")
        await self.queue.resume(**part)

    async def go_on(self, steps: int) -> None:
        acts = [self.add, self.add, self.add, self.start, self.stop, self.cancel, self.die, self.pause]
        for _ in range(steps):
            await self.dice.choice(acts)()
            await self.time.advance(self.dice.choice([0, "1ms", "250ms", "1s", "3s"]))

    async def calm_down(self) -> None:
        """Stop everybody, then let one worker without any surprises do what is left."""
        while self.workers:
            await self.stop()
        last = asyncio.create_task(Worker("line", nothing, store=self.time.store, concurrency=3).run(until_empty=True))
        await self.time.advance("1h")
        await soon(last, self.time)


@pytest.mark.parametrize("seed", range(12))
async def test_every_accepted_job_ends_once_and_no_window_or_slot_count_is_ever_exceeded(time, seed):
    chaos = Chaos(time, seed)
    await chaos.go_on(60)
    await chaos.calm_down()

    ends = Counter(await states(chaos.jobs))
    assert sum(ends[state] for state in ("completed", "failed", "cancelled")) == len(chaos.jobs) > 50
    assert {state: number for state, number in (await chaos.queue.counts()).items() if number} == dict(ends)

    starts = await chaos.queue.starts()
    assert fullest_window(starts, 2) <= 6
    for group in ("a", "b", "c"):
        assert fullest_window([start for start in starts if start.group == group], 3) <= 4
        assert chaos.most[group] <= 2
    assert chaos.most["service"] <= 4

    for job in chaos.jobs:
        assert job.attempts_made <= job.attempts
        assert job.crashes <= 3
        if job.state == "completed":
            assert job.error is None
            assert after(job.started_at) <= after(job.finished_at)


@pytest.mark.parametrize("seed", range(3))
async def test_the_same_history_twice_gives_the_same_starts(seed):
    """Virtual time leaves nothing to chance but the jitter, which is not used here."""
    histories = []
    for _ in range(2):
        async with virtual_time() as time:
            chaos = Chaos(time, seed)
            await chaos.go_on(40)
            await chaos.calm_down()
            numbers = {job.id: number for number, job in enumerate(chaos.jobs)}
            histories.append([(numbers[start.job_id], start.at) for start in await chaos.queue.starts()])

    assert histories[0] == histories[1]
    assert len(histories[0]) > 20


async def test_a_full_backlog_is_used_to_the_last_start_a_limit_allows(time):
    queue = Queue("line", store=time.store, limits=[Rate(50, per="1s")])
    dice = random.Random(0)

    async def handler(job):
        await time.sleep(dice.randint(0, 1900) / 1000)

    await add(queue, 1000)
    crew = [Worker("line", handler, store=time.store, concurrency=40) for _ in range(3)]
    tasks = [asyncio.create_task(worker.run(until_empty=True)) for worker in crew]
    await time.advance("2m")
    await asyncio.gather(*tasks)

    assert Counter(after(start.at) for start in await queue.starts()) == dict.fromkeys(range(20), 50)
