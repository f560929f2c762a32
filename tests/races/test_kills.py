"""Six worker processes, one of which is killed every 400 ms, and a new one takes its place: no promise is broken."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

from paceline import App

from .checkers import (
    begun_too_early,
    begun_without_a_start,
    certainly_busy,
    completed_by_another_run,
    completed_twice,
    lost,
    made_up,
    ran_again_without_a_kill,
    started_after_the_end,
    started_again_too_early,
)
from .crew import Crew, eventually
from .evidence import (
    Evidence,
    broken_limits,
    crowded_beginnings,
    gather,
    is_empty,
    under,
)
from .program import GROUPS, LIMITS, Producer

SECONDS = float(os.environ.get("PACELINE_RACE_SECONDS", "6"))
WORKERS = 6
BETWEEN_KILLS = 0.4
LEASE = 1_500_000
MILLISECOND = 1000


async def test_kills_break_no_limit_and_lose_nothing(app: App, crew: Crew) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    accepted, kills = await work_under_kills(app, crew, random.Random(seed))
    found = await gather(app, crew, LEASE)
    report(found, accepted, kills)

    # On the store's clock, which limits are promises about: nothing is forgiven.
    assert broken_limits(found.starts, certainly_busy(found.starts, found.end_of, LEASE)) == []
    assert started_again_too_early(found.claimed, LEASE) == []
    assert lost(accepted, found.ends) == []
    assert made_up(accepted, found.jobs) == []
    assert started_after_the_end(found.starts, found.end_of) == []

    # On the handlers' own clock: what ran is what was started, not before it, and never more at once than allowed.
    assert begun_without_a_start(found.begun, found.starts) == []
    assert begun_too_early(found.stamped, found.ahead.most) == []
    assert broken_limits([], found.handlers) == []
    assert crowded_beginnings(found) == []

    # Every job was completed by one run, its last one, and no run that came to its end was forgotten.
    assert ran_again_without_a_kill(found.finished, found.starts) == []
    assert completed_by_another_run(found.results, found.starts, found.finished) == []
    assert completed_twice(found.completions) == []

    # And the run was one: every limit was at work in every group, workers died with jobs, nobody met a locked store.
    assert kills >= SECONDS / BETWEEN_KILLS / 2
    assert len({(start.task, start.group) for start in found.starts}) == len(GROUPS) * (len(LIMITS) + 1)
    assert [line for line in crew.complaints() if "locked" in line or "Traceback" in line] == []


async def work_under_kills(app: App, crew: Crew, chance: random.Random) -> tuple[list[str], int]:
    """Kill until the time is over, then let the others finish everything that was accepted."""
    options = ("--lease", f"{LEASE // MILLISECOND}ms")
    await crew.ready(crew.workers(WORKERS, *options))
    producer = Producer(app)
    loop = asyncio.get_running_loop()
    kills = 0
    async with asyncio.TaskGroup() as together:
        together.create_task(producer.run())
        began = loop.time()
        while (after := (kills + 1) * BETWEEN_KILLS) < SECONDS:
            await asyncio.sleep(began + after - loop.time())
            crew.kill(chance.choice(crew.alive))
            crew.workers(1, *options)
            kills += 1
        producer.stop()
    await eventually(lambda: is_empty(app), within=60)
    return producer.accepted, kills


def report(found: Evidence, accepted: list[str], kills: int) -> None:
    """What happened, in figures."""
    runs = Counter(start.job for start in found.starts)
    lags = sorted(each.at + found.ahead.least - each.started_at for each in found.stamped)
    print(
        f"{kills} kills, {len(accepted)} jobs accepted, {len(found.starts)} starts, {len(found.begun)} handlers begun, "
        f"{sum(times > 1 for times in runs.values())} jobs started again, "
        f"{Counter(end.state for end in found.ends)}"
    )
    print({name: len(under(name, found.starts)) for name in LIMITS})
    print(
        f"start to handler: median {lags[len(lags) // 2] / 1000:.1f} ms, 99 % {lags[len(lags) * 99 // 100] / 1000:.1f} "
        f"ms, most {lags[-1] / 1000:.1f} ms; "
        f"clocks known to {found.ahead.most - found.ahead.least} µs"
    )
