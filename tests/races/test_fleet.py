"""Eight worker processes on PostgreSQL, some killed, some standing still, all with wrong clocks: no limit breaks.

`PACELINE_RACE_SECONDS=30` is the full run.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator

import pytest

from paceline import App, Rate

from .checkers import (
    begun_without_a_start,
    certainly_busy,
    completed_by_another_run,
    completed_twice,
    lost,
    made_up,
    started_after_the_end,
    started_again_too_early,
)
from .conftest import STORES
from .crew import Crew, Place, eventually
from .evidence import broken_limits, gather, is_empty, under
from .program import FLEET, GROUPS, Producer, make_app
from .test_full_use import ENOUGH, in_force, one_round, producing, share_used

SECONDS = float(os.environ.get("PACELINE_RACE_SECONDS", "6"))
WORKERS = 8
HOUR = 3600.0
BETWEEN = 0.4
LEASE = 1_500_000
BACKLOG = {
    "hundred_a_second": 30,
    "ten_a_second": 5,
    "seven_at_once": 6,
    "group_rate": 4,
    "group_slot": 4,
    "everything": 2,
}
AMPLE = BACKLOG | {"hundred_a_second": 60, "ten_a_second": 10, "seven_at_once": 1, "group_slot": 1}
ROUNDS = 5


@pytest.fixture(params=["postgres"])
def place(request: pytest.FixtureRequest, tmp_path) -> Place:
    return Place(STORES[request.param](tmp_path), f"fleet-{tmp_path.name}")


@pytest.fixture
async def app(place: Place) -> AsyncIterator[App]:
    async with make_app(place.url, place.namespace, limits=FLEET) as app:
        yield app


def hire(crew: Crew, number: int, *options: str) -> list:
    """Workers whose clocks are an hour early, right, or an hour late."""
    return [
        crew.start("program.py", "work", "--fleet", "--ahead", str(HOUR * (len(crew.members) % 3 - 1)), *options)
        for _ in range(number)
    ]


async def test_a_fleet_with_kills_zombies_and_wrong_clocks_breaks_nothing(app: App, crew: Crew) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    options = ("--lease", f"{LEASE // 1000}ms")
    await crew.ready(hire(crew, WORKERS, *options))
    producer = Producer(app, BACKLOG)
    loop = asyncio.get_running_loop()
    kills = stops = 0
    async with asyncio.TaskGroup() as together:
        together.create_task(producer.run())
        began, asleep = loop.time(), []
        while loop.time() < began + SECONDS:
            await asyncio.sleep(BETWEEN)
            awake = [member for member in crew.alive if member not in [each for each, _ in asleep]]
            if chance.random() < 0.5 and len(asleep) < 3:
                # Long enough that its leases end and others run its jobs; then it goes on as if nothing had happened.
                asleep.append((chance.choice(awake), loop.time() + LEASE / 1e6 * 1.5))
                asleep[-1][0].process.send_signal(signal.SIGSTOP)
                stops += 1
            else:
                crew.kill(chance.choice(awake))
                hire(crew, 1, *options)
                kills += 1
            for member, until in asleep[:]:
                if loop.time() >= until:
                    member.process.send_signal(signal.SIGCONT)
                    asleep.remove((member, until))
        for member, _ in asleep:
            member.process.send_signal(signal.SIGCONT)
        producer.stop()
    await eventually(lambda: is_empty(app), within=60)
    found = await gather(app, crew, LEASE)
    print(
        f"{kills} kills, {stops} zombies, {len(producer.accepted)} jobs, {len(found.starts)} starts, "
        f"{ {name: len(under(name, found.starts)) for name in FLEET} }"
    )

    # On the store's clock, which limits are promises about: nothing is forgiven.
    assert broken_limits(found.starts, certainly_busy(found.starts, found.end_of, LEASE), FLEET) == []
    assert started_again_too_early(found.claimed, LEASE) == []
    assert lost(producer.accepted, found.ends) == []
    assert made_up(producer.accepted, found.jobs) == []
    assert started_after_the_end(found.starts, found.end_of) == []
    assert begun_without_a_start(found.begun, found.starts) == []
    assert completed_by_another_run(found.results, found.starts, found.finished) == []
    assert completed_twice(found.completions) == []
    assert len({(start.task, start.group) for start in found.starts}) == len(GROUPS) * (len(FLEET) + 1)
    assert kills and stops


class TestFullUse:
    """Without kills."""

    @pytest.fixture
    def alone(self) -> bool:
        return True

    async def test_a_fleet_uses_at_least_98_percent_of_what_each_rate_allows(self, app: App, crew: Crew) -> None:
        kinds = [(name, kind) for name, (kind, scope) in FLEET.items() if scope is None]
        rates = [(name, in_force(app, kind)) for name, kind in kinds if isinstance(kind, Rate)]
        (ideal,) = [crew.start("program.py", "tick", "--takes", "1.02")]
        await crew.ready([*hire(crew, WORKERS), ideal])
        best = dict.fromkeys((name for name, _ in rates), 0.0)
        producer = Producer(app, AMPLE)
        async with producing(producer):
            for number in range(ROUNDS):
                since = len(ideal.notes("tick"))
                starts = await one_round(app)
                ticks = [note["at"] // 1000 for note in ideal.notes("tick")[since:]]
                for name, rate in rates:
                    used, text = share_used(rate, [start.at for start in under(name, starts)], ticks)
                    best[name] = max(best[name], used)
                    print(f"round {number + 1}: {name}: {text}")
                if min(best.values()) >= ENOUGH:
                    break
        await app.queue().drain()
        await eventually(lambda: is_empty(app))
        found = await gather(app, crew, lease=30_000_000)

        assert min(best.values()) >= ENOUGH, best
        assert broken_limits(found.starts, certainly_busy(found.starts, found.end_of, 30_000_000), FLEET) == []
        assert crew.complaints() == []
