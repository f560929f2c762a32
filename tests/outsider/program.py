"""One program of a history: `python -m tests.outsider.program ROLE URL NAMESPACE SEED NUMBER LOG`.

It uses the public interface alone, as a user's program would, and writes down what it did and what its handlers saw.
A worker adds jobs and runs them; the operator changes limits, pauses, holds, drains and drops. Every line of the log
is one write, so that a killed program leaves all that it had noted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from paceline import (
    App,
    EnqueueError,
    Fail,
    Job,
    LeaseLost,
    MoveNotAllowed,
    PacelineError,
    Rate,
    RateLimited,
    Retry,
    Store,
    Worker,
)

from .world import LEASE, QUEUES, TASKS, TENANTS, World, other_kind, random_job

NASTY = "a\x00b\udc80c\N{SNOWMAN}"
"""Text that some database refuses."""


MOST = 25
"""Adds of one program: few enough that a backlog under these limits ends in time."""


class Notes:
    """What happened, a line each."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, **more: Any) -> None:
        os.write(self._file, json.dumps({"what": what, "at": time.time(), **more}).encode() + b"\n")


class Program:
    """What both roles share: the app with the world's limits, and notes."""

    def __init__(self, store: str | Store, namespace: str, seed: int, number: int, notes: Notes) -> None:
        self.world = World.of(seed)
        self.chance = random.Random(f"program {seed} {number}")
        self.notes = notes
        self.number = number
        self.app = App(store, namespace=namespace)
        for limit in self.world.limits.values():
            declare(self.app, limit)
        self.queues = {name: self.app.queue(name) for name in QUEUES}
        self.adding = True
        self.stopping = asyncio.Event()

    async def noted(self, what: str, call: Any, **more: Any) -> None:
        """Do something, and note from when to when it may have taken effect."""
        since = time.time()
        await call
        self.notes.write(what, since=since, **more)


def declare(app: App, limit: Any) -> None:
    app.limit(limit.name, limit.kind, queues=limit.queues, tasks=limit.tasks, by=limit.by)


class WorkerProgram(Program):
    """Adds jobs and runs them with a worker or two of its own kind."""

    async def run(self) -> None:
        workers = [self._worker() for _ in range(self.chance.randint(1, 2))]
        async with contextlib.AsyncExitStack() as stack:
            for worker in workers:
                await stack.enter_async_context(worker)
            self.notes.write("ready")
            tasks = [asyncio.create_task(self._add()), asyncio.create_task(self._acquire())]
            await self.stopping.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.notes.write("stopped", insurance=sum(worker.insurance_wakeups for worker in workers))

    def _worker(self) -> Worker:
        chance = self.chance
        queues = chance.choice([QUEUES, QUEUES, QUEUES[::-1]])
        options: dict[str, Any] = {"concurrency": chance.randint(1, 8), "lease": LEASE}
        if chance.random() < 0.3:
            options["limiter"] = Rate(chance.randint(5, 30), per="300ms")
        if chance.random() < 0.25:
            return Worker(queues, self._batch, store=self.app.store, batch=3, **options)
        handler = self._plain if chance.random() < 0.2 else self._one
        return Worker(queues, handler, store=self.app.store, **options)

    async def _one(self, job: Job[Any]) -> Any:
        self._begin(job)
        try:
            await asyncio.sleep(job.data["takes"])
            result = await self._act(job)
        finally:
            self._end(job, sys.exception())
        return result

    def _plain(self, job: Job[Any]) -> Any:
        self._begin(job)
        time.sleep(job.data["takes"])
        self._end(job, None)
        return job.id

    async def _batch(self, jobs: list[Job[Any]]) -> list[Any]:
        for job in jobs:
            self._begin(job)
        results: list[Any] = []
        for job in jobs:
            error: BaseException | None = None
            try:
                results.append(await self._act(job))
            except Exception as raised:
                error = raised
                results.append(raised)
            self._end(job, error)
        return results

    def _begin(self, job: Job[Any]) -> None:
        assert job.started_at is not None
        self.notes.write(
            "begin",
            job=job.id,
            task=job.task,
            group=job.group,
            attempt=job.attempts_made,
            started_at=job.started_at.timestamp(),
        )

    def _end(self, job: Job[Any], error: BaseException | None) -> None:
        assert job.started_at is not None
        self.notes.write(
            "end",
            job=job.id,
            started_at=job.started_at.timestamp(),
            error=None if error is None else type(error).__name__,
        )

    async def _act(self, job: Job[Any]) -> Any:
        match job.data["does"]:
            case "raise":
                raise ValueError("no luck")
            case "nasty":
                raise ValueError(NASTY)
            case "huge":
                raise ValueError("x" * 300_000)
            case "retry":
                raise Retry(after="15ms")
            case "fail":
                raise Fail("for good")
            case "refused" if random.random() < 0.5:
                raise RateLimited(retry_after=0.05)
            case "note":
                with contextlib.suppress(LeaseLost):
                    await job.log(NASTY)
                    await job.progress(50, NASTY)
        return job.id

    async def _add(self) -> None:
        chance = self.chance
        number = 0
        while self.adding and number < MOST:
            number += 1
            queue = self.queues[chance.choice(QUEUES)]
            jobs = [random_job(chance, number) for _ in range(chance.choice([1, 1, 1, 4, 12]))]
            since = time.time()
            try:
                if len(jobs) == 1:
                    task, data, options = jobs[0]
                    added = [await queue.add(task, data, **options)]
                else:
                    added = await queue.add_many(jobs)
            except EnqueueError as error:
                self.notes.write("refused", error=str(error))
                continue
            self.notes.write("added", queue=queue.name, jobs=[job.id for job in added], since=since)
            await asyncio.sleep(chance.choice([0, 0.01, 0.05, 0.1]))

    async def _acquire(self) -> None:
        """Code without jobs under the same limits; sometimes it gives up while it waits."""
        names = [name for name in ("api", "slots") if name in self.world.limits]
        while names and self.adding:
            await asyncio.sleep(self.chance.random() * 0.3)
            name = self.chance.choice(names)
            with contextlib.suppress(TimeoutError, PacelineError):
                async with asyncio.timeout(0.03 if self.chance.random() < 0.5 else 0.5):
                    async with self.app.limiter(name).acquire():
                        permit = f"permit-{self.number}-{self.chance.random()}"
                        self.notes.write("permit", limit=name, permit=permit)
                        try:
                            await asyncio.sleep(0.01)
                        finally:
                            self.notes.write("permit-end", permit=permit)


class OperatorProgram(Program):
    """Changes what others live with, one thing after the other, and takes all of it back at the end."""

    async def run(self) -> None:
        await self.queues["alpha"].counts()
        self.notes.write("ready")
        self.paused: set[tuple[str, str | None, str | None]] = set()
        acts: list[Callable[[], Any]] = [
            self._override, self._override, self._lift, self._pause, self._pause, self._resume, self._hold,
            self._release, self._drain, self._drop, self._retry, self._cancel, self._promote, self._read, self._read,
        ]  # fmt: skip
        while not self.stopping.is_set():
            await self.chance.choice(acts)()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), self.chance.choice([0.01, 0.1, 0.25]))
        for name in self.world.limits:
            await self.noted("lift", self.app.override(name, None), limit=name, group=None)
            await self.noted("release", self.app.release(name), limit=name)
        for queue, task, group in sorted(self.paused, key=str):
            await self.noted("resume", self.queues[queue].resume(task=task, group=group), pause=[queue, task, group])
        self.notes.write("stopped")

    def _limit(self) -> str:
        return self.chance.choice(sorted(self.world.limits))

    async def _override(self) -> None:
        name, kind = self._limit(), other_kind(self.chance, "")
        expires = self.chance.choice([None, None, "100ms"])
        call = self.app.override(name, kind, expires=expires, reason=NASTY.encode("ascii", "ignore").decode())
        await self.noted("override", call, limit=name, kind=repr(kind), expires=expires)

    async def _lift(self) -> None:
        name = self._limit()
        await self.noted("lift", self.app.override(name, None), limit=name)

    async def _pause(self) -> None:
        queue = self.chance.choice(QUEUES)
        task, group = self.chance.choice(
            [(None, None), (self.chance.choice(TASKS), None), (None, self.chance.choice(TENANTS))]
        )
        await self.noted("pause", self.queues[queue].pause(task=task, group=group), pause=[queue, task, group])
        self.paused.add((queue, task, group))

    async def _resume(self) -> None:
        for queue, task, group in sorted(self.paused, key=str):
            await self.noted("resume", self.queues[queue].resume(task=task, group=group), pause=[queue, task, group])
        self.paused.clear()

    async def _hold(self) -> None:
        name = self._limit()
        await self.noted("hold", self.app.hold(name, for_="200ms"), limit=name, seconds=0.2)

    async def _release(self) -> None:
        name = self._limit()
        await self.noted("release", self.app.release(name), limit=name)

    async def _drain(self) -> None:
        if self.chance.random() < 0.2:
            name = self.chance.choice(QUEUES)
            await self.noted("drain", self.queues[name].drain(), queue=name)

    async def _drop(self) -> None:
        """Drop a limit, and declare it again a little later, as an operator who changed their mind."""
        if self.chance.random() < 0.3:
            name = self._limit()
            await self.noted("drop", self.app.drop_limit(name), limit=name)
            await asyncio.sleep(self.chance.choice([0, 0.05]))
            declare(self.app, self.world.limits[name])
            await self.noted("declare", self.queues["alpha"].counts(), limit=name)

    async def _retry(self) -> None:
        name = self.chance.choice(QUEUES)
        failed = await self.queues[name].list("failed", limit=3)
        for job in failed:
            with contextlib.suppress(MoveNotAllowed):
                await self.noted("retried", job.retry(), job=job.id)

    async def _cancel(self) -> None:
        for job in await self.queues[self.chance.choice(QUEUES)].list("waiting", limit=2):
            with contextlib.suppress(MoveNotAllowed, PacelineError):
                await self.noted("cancelled", job.cancel(), job=job.id)

    async def _promote(self) -> None:
        await self.noted("promoted", self.queues[self.chance.choice(QUEUES)].promote_jobs())

    async def _read(self) -> None:
        """Reads must neither fail nor change anything."""
        queue = self.queues[self.chance.choice(QUEUES)]
        for job in await queue.list(limit=3):
            with contextlib.suppress(PacelineError):
                await job.explain()
        await queue.starts(datetime.now(UTC))
        await self.app.limit_state(self._limit())


ROLES = {"work": WorkerProgram, "operate": OperatorProgram}


async def main(role: str, url: str, namespace: str, seed: int, number: int, log: str) -> None:
    """Until SIGTERM; SIGUSR1 asks it to add nothing more."""
    program = ROLES[role](url, namespace, seed, number, Notes(log))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, program.stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, setattr, program, "adding", False)
    async with program.app:
        await program.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    role, url, namespace, seed, number, log = sys.argv[1:]
    asyncio.run(main(role, url, namespace, int(seed), int(number), log))
