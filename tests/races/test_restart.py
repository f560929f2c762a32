"""kill −9 of everything in the middle of work, and a new start: what was promised before still holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from paceline import App, Job, Rate
from paceline.stores import open_store

from .checkers import (
    Started,
    begun_too_early,
    begun_without_a_start,
    certainly_busy,
    completed_by_another_run,
    completed_twice,
    crowded_windows,
    lost,
    made_up,
    ran_again_without_a_kill,
    started_after_the_end,
    started_again_too_early,
)
from .crew import Crew, Place, eventually, until
from .evidence import (
    Evidence,
    all_jobs,
    broken_limits,
    clock_ahead,
    gather,
)
from .program import EVERYTHING, LIMITS, make_app, micros

SECOND = 1_000_000
HOUR = 3600 * SECOND
LEASE = 2 * SECOND
OPTIONS = ("--lease", "2s", "--takes", "0.05")
KILLS = 2


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[App]:
    """The app of a program that has just been started: nothing of it is left from before."""
    async with make_app(open_store(place.url, namespace=place.namespace), place.namespace) as app:
        app.limit("three an hour", Rate(3, per="1h"), tasks=["rare"])
        app.limit("hold", Rate(100, per="1s"), tasks=["held"])
        yield app


async def test_after_a_kill_of_everything_all_is_as_it_was(place: Place, crew: Crew) -> None:
    async with opened(place) as app:
        blocked, delayed = await add_what_must_wait(app)
        rare = [await app.tasks["rare"].enqueue() for _ in range(5)]
        held_until = (await app.limit_state("hold")).held_until
    for _ in range(KILLS):
        await work_and_kill_everything(place, crew)

    await crew.ready(crew.workers(4, *OPTIONS))
    async with opened(place) as app:
        waiting = {job.id for job in (*blocked, *delayed)}
        await eventually(lambda: only_these_are_left(app, waiting, and_of=rare), within=60)
        await as_it_was(app, blocked, delayed)
        assert (await app.limit_state("hold")).held_until == held_until is not None

        await let_go(app, delayed)
        await eventually(lambda: only_these_are_left(app, set(), and_of=rare), within=60)
        found = await gather(app, crew, LEASE)
    report(found)

    own = {job.id for job in (*blocked, *delayed, *rare)}
    accepted = {note["job"] for note in crew.notes("accepted")}
    assert lost(accepted | own - {job.id for job in rare}, found.ends) == []
    assert made_up(own | {note["job"] for note in crew.notes("try")}, found.jobs) == []
    assert {end.state for end in found.ends} == {"completed", "waiting"}
    assert started_again_too_early(found.claimed, LEASE) == []
    assert started_after_the_end(found.starts, found.end_of) == []
    assert ran_again_without_a_kill(found.finished, found.starts) == []
    assert completed_by_another_run(found.results, found.starts, found.finished) == []
    assert completed_twice(found.completions) == []
    assert begun_without_a_start(found.begun, found.starts) == []
    assert begun_too_early(found.stamped, found.ahead.most) == []
    # Windows go on counting across the restarts: what started before them counts after them.
    assert broken_limits(found.starts, certainly_busy(found.starts, found.end_of, LEASE)) == []
    assert broken_limits([], found.handlers) == []
    assert crowded_windows([start for start in found.starts if start.task == "rare"], 3, HOUR) == []
    assert len(accepted) > 50
    assert [line for line in crew.complaints() if "locked" in line or "Traceback" in line] == []


async def add_what_must_wait(app: App) -> tuple[list[Job[Any]], list[Job[Any]]]:
    """Jobs behind a paused task, a paused group and a hold, and jobs for later."""
    queue = app.queue()
    await queue.pause(task="quiet")
    await queue.pause(group="frozen")
    await app.hold("hold", for_="1h", reason="closed")
    blocked = [await app.tasks["quiet"].enqueue(), await app.tasks["held"].enqueue()]
    blocked += [await app.tasks[name].using(group="frozen").enqueue() for name in ("plain", *LIMITS, EVERYTHING)]
    delayed = [await app.tasks["plain"].using(delay=delay).enqueue() for delay in ("1h", "2h", "1h")]
    return blocked, delayed


async def work_and_kill_everything(place: Place, crew: Crew) -> None:
    """Workers and a producer, until a good deal is done and several handlers are in the middle of their work."""
    before = len(crew.notes("end"))
    workers = crew.workers(4, *OPTIONS)
    producer = crew.start("program.py", "produce")
    await crew.ready([*workers, producer])
    await until(lambda: len(crew.notes("end")) > before + 60)
    await until(lambda: sum(len(each.notes("begin")) - len(each.notes("end")) for each in workers) >= 2)
    crew.kill(producer, *workers)
    async with opened(place) as app:
        assert (await app.queue().counts())["active"] >= 1, "nobody was killed in the middle of work"


async def only_these_are_left(app: App, waiting: set[str], and_of: list[Job[Any]]) -> bool:
    """True when everything else has ended; of those behind the limit of three an hour, two are left."""
    jobs = await all_jobs(app.queue())
    left = {job.id for job in jobs if str(job.state) not in ("completed", "failed", "cancelled")}
    slow = left & {job.id for job in and_of}
    return left - slow == waiting and len(slow) == 2


async def as_it_was(app: App, blocked: list[Job[Any]], delayed: list[Job[Any]]) -> None:
    """None of those that must wait has started, and those for later are due when they were."""
    for before in (*blocked, *delayed):
        job = await app.get(before.id)
        assert job is not None
        assert (job.state, job.due_at, job.started_at) == (before.state, before.due_at, None)
        assert (job.task, job.group, job.data) == (before.task, before.group, before.data)


async def let_go(app: App, delayed: list[Job[Any]]) -> None:
    """Take back every pause and hold, and make what was for later due now."""
    queue = app.queue()
    await queue.resume(task="quiet")
    await queue.resume(group="frozen")
    await app.release("hold")
    assert await queue.promote_jobs() == len(delayed)


def report(found: Evidence) -> None:
    again: dict[str, list[int]] = {}
    for start in sorted(found.starts, key=lambda start: start.at):
        again.setdefault(start.job, []).append(start.at)
    gaps = sorted(times[place + 1] - at for times in again.values() for place, at in enumerate(times[:-1]))
    shown = f", {gaps[0] / SECOND:.3f} to {gaps[-1] / SECOND:.3f} s after the start before" if gaps else ""
    print(f"{len(found.jobs)} jobs, {len(found.starts)} starts, {len(gaps)} of them second ones{shown}")


async def test_slots_of_killed_workers_come_back_when_their_leases_end_and_not_before(app: App, crew: Crew) -> None:
    busy = crew.workers(2, "--lease", "2s", "--takes", "60", "--slots", "1")
    await crew.ready(busy)
    first = [await app.tasks["two_at_once"].enqueue() for _ in range(2)]
    await until(lambda: len(crew.notes("begin")) == 2)
    third = await app.tasks["two_at_once"].enqueue()
    await crew.ready(crew.workers(1, "--lease", "2s"))

    crew.kill(*busy)
    killed_at = max(member.killed_at or 0 for member in busy) // 1000 + (await clock_ahead(app)).most
    for job in (*first, third):
        await job.result(timeout=30)

    starts = await app.queue().starts()
    second = [start for start in starts[2:] if start.job_id in {job.id for job in first}]
    leases_began = sorted(start.at for start in starts[:2])
    late = [(micros(start.at) - killed_at) / SECOND for start in starts[2:]]
    print(f"after the kill the next starts came after {[f'{each:.3f}' for each in late]} s; a lease is 2 s")
    assert len(starts) == 5
    assert len(second) == 2
    assert starts[2].at >= leases_began[0] + timedelta(seconds=2)
    assert started_again_too_early([Started(each.job_id, micros(each.at)) for each in starts], LEASE) == []
    # An idle worker takes over by itself: the leases ended at the latest 2 s after the kill.
    assert late[-1] <= 2 + 1
    assert {(await job.refresh()).crashes for job in first} == {1}
    assert (await third.refresh()).crashes == 0
