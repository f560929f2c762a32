"""Small builders: whatever a test does not say is the plainest value there is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from itertools import count, pairwise
from typing import Any, TypeVar

from paceline.clock import Micros
from paceline.durations import parse_duration
from paceline.job import JobRecord, JobState, Move, NewJob
from paceline.limits import Kind, Limit
from paceline.stores.interface import Ask, Claim, Finish, Hold, Note, Outcome, Store, Usage

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

PATIENCE = 5
"""Seconds of real time after which something that should happen at once is taken not to happen."""

T = TypeVar("T")

_DURATIONS = ("delay", "timeout", "keep", "unique_ttl", "lease", "after", "for_")
_numbers = count(1)


def us(duration: str) -> Micros:
    """A duration as people write it, in microseconds."""
    return parse_duration(duration, option="duration", zero=True)


async def soon(awaitable: Awaitable[T]) -> T:
    """What should come without the clock moving."""
    return await asyncio.wait_for(awaitable, PATIENCE)


def in_micros(changes: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with every duration in microseconds."""
    texts = {name: us(changes[name]) for name in _DURATIONS if isinstance(changes.get(name), str)}
    return changes | texts


# jobs


def a_job(id: str | None = None, *, queue: str = "line", task: str = "work", **changes: Any) -> NewJob:
    """A job to insert: `a_job(group="acme", delay="5s")`."""
    return NewJob(f"job-{next(_numbers)}" if id is None else id, queue, task, **in_micros(changes))


async def add(store: Store, *ids: str, **changes: Any) -> list[JobRecord]:
    """Insert one job per id, all with the same options."""
    return [inserted.job for inserted in await store.insert([a_job(id, **changes) for id in ids])]


async def add_many(store: Store, number: int, **changes: Any) -> list[str]:
    """Insert many jobs with the same options; returns their ids."""
    jobs = [a_job(**changes) for _ in range(number)]
    await store.insert(jobs)
    return [job.id for job in jobs]


async def read(store: Store, id: str) -> JobRecord:
    """The job as the store has it now."""
    (record,) = await store.get([id])
    return record


async def state_of(store: Store, id: str) -> JobState:
    return (await read(store, id)).state


# claims


def ask(slots: int = 1, *, queues: Sequence[str] = ("line",), worker: str = "worker", **changes: Any) -> Ask:
    """What a worker asks for. Leases are long, so that only tests about leases see them end."""
    return Ask(queues=tuple(queues), slots=slots, worker=worker, **in_micros({"lease": DAY} | changes))


async def claim(store: Store, slots: int = 1, *, finishes: Sequence[Finish] = (), **changes: Any) -> Claim:
    return await store.claim(ask(slots, **changes), finishes)


def claimed(claim: Claim) -> list[str]:
    """The ids of the jobs that a claim started, in its order."""
    return [job.id for job in claim.jobs]


async def start(store: Store, slots: int = 1, **changes: Any) -> list[JobRecord]:
    """Claim, and insist on getting as many jobs as were asked for."""
    jobs = (await claim(store, slots, **changes)).jobs
    assert len(jobs) == slots, f"asked for {slots}, got {[job.id for job in jobs]}"
    return jobs


async def start_all(store: Store, slots: int = 100, **changes: Any) -> list[JobRecord]:
    """Claim until nothing more may start now, as a worker with endless slots does."""
    jobs: list[JobRecord] = []
    while True:
        answer = await claim(store, slots, **changes)
        jobs += answer.jobs
        if not answer.jobs and answer.ask_again_at > answer.now:
            return jobs


async def opens_exactly_at(store: Store, clock: Any, at: Micros, **changes: Any) -> JobRecord:
    """Nothing starts one microsecond before the instant that the claim names, and one job starts at it."""
    refused = await claim(store, **changes)
    assert (claimed(refused), refused.ask_again_at) == ([], at)

    clock.to(at - 1)
    refused = await claim(store, **changes)
    assert (claimed(refused), refused.ask_again_at) == ([], at)

    clock.to(at)
    (job,) = await start(store, **changes)
    assert job.started_at == at
    return job


# ends of runs


def ending(job: JobRecord, outcome: Outcome = Outcome.COMPLETED, **changes: Any) -> Finish:
    """The end of the run that this record is the proof of."""
    return Finish(id=job.id, fence=job.fence, outcome=outcome, **in_micros(changes))


async def finish(store: Store, job: JobRecord, outcome: Outcome = Outcome.COMPLETED, **changes: Any) -> None:
    """End one run, and insist on being heard."""
    assert await store.finish([ending(job, outcome, **changes)]) == []


async def complete(store: Store, jobs: Iterable[JobRecord]) -> None:
    """Complete runs, and insist on being heard."""
    assert await store.finish([ending(job) for job in jobs]) == []


def a_note(job: JobRecord, **changes: Any) -> Note:
    return Note(id=job.id, fence=job.fence, **changes)


async def a_job_in(store: Store, state: JobState, id: str = "a", **changes: Any) -> JobRecord:
    """A job that was brought into a state; nothing else may be waiting in its queue."""
    queue = changes.get("queue", "line")
    if state is JobState.DELAYED:
        await add(store, id, delay="1h", **changes)
    else:
        await add(store, id, **changes)
    if state is JobState.CANCELLED:
        await store.move([id], Move.CANCEL)
    if state in (JobState.ACTIVE, JobState.COMPLETED, JobState.FAILED):
        (job,) = await start(store, queues=[queue])
        if state is JobState.COMPLETED:
            await finish(store, job, result=b"42")
        if state is JobState.FAILED:
            await finish(store, job, Outcome.FAILED, error="broken")
    record = await read(store, id)
    assert record.state is state
    return record


# limits


async def declare(store: Store, name: str, kind: Kind, **scope: Any) -> None:
    """Declare one limit: `await declare(store, "email", Rate(2, per="1m"), tasks=["send"])`."""
    await store.set_limits([Limit(name, kind, **scope)])


async def hold(store: Store, limit: str, **changes: Any) -> None:
    """Hold one key: `await hold(store, "email", for_="30s")`."""
    await store.hold([Hold(limit=limit, **in_micros(changes))])


async def usage(store: Store, limit: str, group: str | None = None) -> Usage:
    return await store.usage(limit, group)


# turns


def groups_of(jobs: Iterable[JobRecord]) -> list[str | None]:
    return [job.group for job in jobs]


def most_starts_between(order: Sequence[str | None], group: str | None) -> int:
    """How often some other group started between two starts of this one, at most."""
    places = [place for place, name in enumerate(order) if name == group]
    between = [Counter(order[first + 1 : second]) for first, second in pairwise(places)]
    return max((number for counter in between for number in counter.values()), default=0)
