"""The Lua port of each kind against the Python kernel: the same starts at the same instants, the same answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from paceline.clock import NEVER
from paceline.errors import NeverFits
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Limit, Rate, Unlimited
from paceline.limits.admission import Meter
from paceline.stores import open_store
from paceline.stores.interface import Begun, Target

from ..clocks import HandClock
from ..servers.redis import empty_redis

NOW = 1_794_000_000_123_456
"""As late as today: where a clock in doubles would lose its last digits."""
HISTORIES = 40
STEPS = 60


KINDS: dict[str, list[Kind]] = {
    "small rates": [Rate(1, per="7us"), Rate(3, per="10us"), Rate(4, per="25us"), Rate(2, per="10us", guard="3us")],
    "big rates": [Rate(1000, per="1s"), Rate(100_000, per="1h"), Rate(7, per="90 days"), Rate(2_000, per="1ms")],
    "delays": [Delay("1us"), Delay("13us"), Delay("1h")],
    "spacings": [EvenlySpaced(7, per="60s"), EvenlySpaced(3, per="10us"), EvenlySpaced(100_000, per="30 days")],
    "odd spacings": [EvenlySpaced(999_983, per="1s"), EvenlySpaced(1, per="1 day"), EvenlySpaced(7, per="11us")],
    "all at once": [
        AllOf(Rate(3, per="20us"), Delay("2us")),
        AllOf(Rate(5, per="20us"), Rate(8, per="60us")),
        AllOf(EvenlySpaced(3, per="20us"), Rate(4, per="15us")),
    ],
    "one after the other": [Rate(3, per="20us"), EvenlySpaced(3, per="20us"), Delay("5us"), Rate(9, per="20us")],
    "remembered": [Rate(3, per="20us"), Unlimited(), Rate(50, per="90us"), Rate(2, per="5us")],
    "guards that are lowered and raised": [
        Rate(3, per="20us", guard="9us"),
        Rate(3, per="20us", guard="2us"),
        AllOf(Rate(2, per="12us", guard="5us"), Rate(5, per="30us", guard=0)),
        Unlimited(),
        Rate(40, per="90us", guard="30us"),
    ],
    "last starts remembered": [
        Delay("30us"),
        Unlimited(),
        EvenlySpaced(3, per="90us"),
        Delay("2us"),
        Rate(9, per="9us"),
    ],
}


def stretches(kinds: list[Kind]) -> list[int]:
    """Steps of time around everything that these kinds measure."""
    lengths = {1, 2}
    for part in (part for kind in kinds for part in kind.parts()):
        for name in ("window", "gap_us", "per_us"):
            length = getattr(part, name, 0)
            lengths |= {length, length // getattr(part, "max", 1)}
    return sorted({max(length + by, 0) for length in lengths for by in (-1, 0, 1)})


@pytest.mark.parametrize("word", KINDS)
async def test_a_kind_decides_the_same_in_lua(word: str) -> None:
    clock = HandClock(NOW)
    store = open_store(empty_redis(), clock=clock)
    try:
        for seed in range(HISTORIES):
            await compare_history(store, clock, KINDS[word], random.Random(f"{word}{seed}"), f"limit {seed}")
    finally:
        await store.close()


async def compare_history(store: Any, clock: HandClock, kinds: list[Kind], chance: random.Random, name: str) -> None:
    kind = chance.choice(kinds)
    await store.set_limits([Limit.for_code(name, kind)])
    # The key of a group may be forgotten, so it remembers more than a shared one.
    group = chance.choice([None, "acme"])
    meter = Meter((name, group), kind)
    steps = stretches(kinds)
    most = meter.most()
    starts: list[tuple[int, int]] = []
    for number in range(STEPS):
        said = (word_for(name), number, clock.at)
        words = {"start": 8, "start many": 2, "late": 3, "time": 4, "exact": 4, "change": 1, "clear": 0.2}
        match chance.choices(list(words), list(words.values()))[0]:
            case "start":
                starts += await start(store, meter, clock, cost_for(chance, most), chance.random() < 0.2, said)
            case "start many":
                for _ in range(chance.randint(2, 8)):
                    starts += await start(store, meter, clock, 1, False, said)
            case "late" if starts:
                cost, at = starts.pop(chance.randrange(max(len(starts) - 6, 0), len(starts)))
                await start_late(store, meter, clock, cost, at, chance, said)
            case "time":
                clock.at += chance.choice(steps)
            case "exact":
                opens = meter.opens_at(1)
                if clock.at < opens < NEVER:
                    clock.at = opens - chance.randint(0, 1)
            case "change" if len(kinds) > 1:
                kind = chance.choice(kinds)
                await store.set_limits([Limit.for_code(name, kind)])
                meter.change(kind)
                most = meter.most()
            case "clear":
                await store.clear(name, group)
                meter.clear()
        usage = await store.usage(name, group)
        assert usage.opens_at == meter.opens_at(1), said
        assert (usage.used, usage.allowed) == meter.used_and_allowed(clock.at), said


def word_for(name: str) -> str:
    return f"in the history of {name}"


def cost_for(chance: random.Random, most: int) -> int:
    # Instants stay before the year 2255: so far reach whole microseconds in a double.
    most = min(most, 100_000) if most < NEVER else 100
    return chance.choice([1, 1, 1, 2, 3, max(most // 2, 1), most, most + 1])


async def start(store: Any, meter: Meter, clock: HandClock, cost: int, force: bool, said: Any) -> list[tuple[int, int]]:
    """Start something on both; its cost and its instant, if it was admitted."""
    if not meter.fits(cost):
        with pytest.raises(NeverFits):
            await store.acquire([Target(*meter.key, cost=cost)], "permit", 10, force)
        return []
    until = meter.opens_at(cost)
    grant = await store.acquire([Target(*meter.key, cost=cost)], "permit", 10, force)
    if until <= clock.at or force:
        assert (grant.granted, grant.guard) == (True, meter.guard), said
        meter.count(cost, clock.at)
        return [(cost, clock.at)]
    assert (grant.granted, grant.until) == (False, until), said
    return []


async def start_late(
    store: Any, meter: Meter, clock: HandClock, cost: int, at: int, chance: random.Random, said: Any
) -> None:
    """A start is decided again; if it is admitted, it is open for a while and then begins."""
    grant = await store.acquire([Target(*meter.key, cost=cost)], "late", 10**9, late=at)
    meter.take_out(cost, at)
    assert grant.granted == meter.admits_late(cost, clock.at), said
    if not grant.granted:
        return
    meter.open_up(cost)
    clock.at += chance.choice([0, 1, 7])
    usage = await store.usage(*meter.key)
    assert (usage.opens_at, usage.open) == (meter.opens_at(1), cost), said
    assert (usage.used, usage.allowed) == used_and_allowed(meter, clock.at), said
    await store.begun([Begun("late", 0)])
    meter.open_up(-cost)
    meter.begin(cost, clock.at)
    await store.give_back(["late"])


def used_and_allowed(meter: Meter, now: int) -> tuple[int, int | None]:
    """With the lease of the late start, which a meter without slots does not look at unless nothing limits it."""
    used, allowed = meter.used_and_allowed(now)
    return (1, None) if allowed is None else (used, allowed)


async def test_slots_are_counted_the_same_in_lua() -> None:
    clock, chance = HandClock(NOW), random.Random("slots")
    store = open_store(empty_redis(), clock=clock)
    kind = Concurrency(3) & Rate(5, per="20us")
    await store.set_limits([Limit.for_code("slots", kind)])
    meter = Meter(("slots", None), kind)
    held: list[str] = []
    for number in range(400):
        if held and chance.random() < 0.4:
            permit = held.pop(chance.randrange(len(held)))
            await store.give_back([permit])
            meter.leases.discard(permit)
        else:
            until = meter.opens_at(1)
            grant = await store.acquire([Target("slots")], f"p{number}", 1_000_000)
            assert grant.granted == (until <= clock.at)
            if grant.granted:
                held.append(f"p{number}")
                meter.charge(f"p{number}", 1, clock.at)
        clock.at += chance.choice([0, 0, 1, 5, 20])
    await store.close()


async def test_a_window_of_a_hundred_thousand_starts_is_exact() -> None:
    clock = HandClock(NOW)
    store = open_store(empty_redis(), clock=clock)
    await store.set_limits([Limit.for_code("tokens", Rate(100_000, per="1s"))])
    meter = Meter(("tokens", None), Rate(100_000, per="1s"))
    chance = random.Random("wide")
    for _ in range(3_000):
        clock.at += chance.choice([0, 1, 200, 1_000])
        await start(store, meter, clock, chance.choice([1, 40, 500, 3_000]), False, clock.at)
    usage = await store.usage("tokens", None)
    assert (usage.used, usage.opens_at) == (meter.used_and_allowed(clock.at)[0], meter.opens_at(1))
    await store.close()
