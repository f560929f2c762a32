"""A worker that stood still while its leases ended, and then goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import signal

from paceline import App

from .checkers import (
    certainly_busy,
    completed_by_another_run,
    completed_twice,
    started_after_the_end,
    started_again_too_early,
)
from .crew import Crew, until
from .evidence import broken_limits, gather

LEASE = 2_000_000


async def test_a_worker_that_stood_still_for_longer_than_its_lease_changes_nothing(app: App, crew: Crew) -> None:
    (asleep,) = crew.workers(1, "--lease", "2s", "--takes", "0.5", "--slots", "2")
    await crew.ready([asleep])
    taken_over = [await app.tasks["two_at_once"].enqueue() for _ in range(2)]
    await until(lambda: len(asleep.notes("begin")) == 2)
    # Its first renewal is a good while away: it does not stand still in the middle of a write, in everybody's way.
    asleep.process.send_signal(signal.SIGSTOP)
    assert asleep.notes("end") == []
    waits = await app.tasks["two_at_once"].enqueue()

    (awake,) = crew.workers(1, "--lease", "2s", "--takes", "1.5")
    await until(lambda: len(awake.notes("begin")) == 2)
    # Both jobs run a second time when the first worker wakes up and says that it is done with them.
    asleep.process.send_signal(signal.SIGCONT)
    await until(lambda: sum("lease was lost" in line for line in asleep.complaints()) >= 2)
    ended_meanwhile = awake.notes("end")
    for job in (*taken_over, waits):
        await job.result(timeout=30)
    found = await gather(app, crew, LEASE)

    assert ended_meanwhile == [], "the first worker woke up too late to be in the way"
    assert broken_limits(found.starts, certainly_busy(found.starts, found.end_of, LEASE)) == []
    assert started_again_too_early(found.starts, LEASE) == []
    assert started_after_the_end(found.starts, found.end_of) == []
    assert completed_by_another_run(found.results, found.starts, found.finished) == []
    assert completed_twice(found.completions) == []
    assert [(job.crashes, job.attempts_made) for job in found.jobs.values()] == [(1, 1), (1, 1), (0, 1)]
    assert len(found.starts) == 5


async def test_a_worker_that_stood_still_and_whose_job_nobody_took_goes_on_with_it(app: App, crew: Crew) -> None:
    (member,) = crew.workers(1, "--lease", "1s", "--takes", "2.5", "--slots", "4")
    await crew.ready([member])
    job = await app.tasks["two_at_once"].enqueue()
    await until(lambda: member.notes("begin"))
    await asyncio.sleep(0.2)
    member.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(1.5)
    member.process.send_signal(signal.SIGCONT)
    await job.result(timeout=30)

    assert len(member.notes("begin")) == len(member.notes("end")) == 1
    assert len(await app.queue().starts()) == 1
    assert (job.crashes, job.attempts_made) == (0, 1)
