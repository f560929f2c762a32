"""A limiter for any code: permits that are waited for exactly, leased, and counted together with jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paceline import (
    App,
    Concurrency,
    ConfigError,
    Delay,
    EvenlySpaced,
    Limiter,
    Permit,
    Rate,
    Unlimited,
    open_store,
)
from paceline.clock import SECOND
from paceline.stores.interface import Target
from paceline.testing import VirtualTime

from .conftest import Timeline

LEASE = 30


class Takers:
    """Tasks that wait for a permit, and when each of them got it."""

    def __init__(self, limiter: Limiter, timeline: Timeline, takes: str = "0s") -> None:
        self.limiter = limiter
        self.timeline = timeline
        self.takes = takes
        self.got: list[float] = []
        self.order: list[object] = []

    async def take(self, name: object = None, **options: Any) -> None:
        async with self.limiter.acquire(**options):
            self.got.append(self.timeline.now)
            self.order.append(name)
            await self.timeline.time.sleep(self.takes)

    def start(self, name: object = None, **options: Any) -> asyncio.Task[None]:
        return asyncio.create_task(self.take(name, **options))


# waiting


@pytest.mark.parametrize(
    ("kind", "takes", "got"),
    [
        (Rate(2, per="1m"), "0s", [0, 0, 60, 60, 120]),
        (Rate(2, per="1m", guard="1s"), "0s", [0, 0, 61, 61, 122]),
        (Concurrency(2), "7s", [0, 0, 7, 7, 14]),
        (Delay("5s"), "0s", [0, 5, 10, 15, 20]),
        (EvenlySpaced(60, per="1m"), "10s", [0, 1, 2, 3, 4]),
        (Rate(2, per="1m") & Concurrency(1), "7s", [0, 7, 60, 67, 120]),
        (Unlimited(), "7s", [0, 0, 0, 0, 0]),
    ],
    ids=repr,
)
async def test_acquire_waits_exactly_as_long_as_needed(
    paceline_time: VirtualTime, timeline: Timeline, kind: Any, takes: str, got: list[float]
) -> None:
    takers = Takers(Limiter("it", kind, store=paceline_time.store), timeline, takes)
    tasks = [takers.start() for _ in range(5)]
    await paceline_time.advance("3m")
    await asyncio.gather(*tasks)
    assert takers.got == got


async def test_acquire_waits_for_real_time_on_a_real_clock() -> None:
    limiter = Limiter("it", Delay("60ms"), store=open_store("memory://"))
    clock = asyncio.get_running_loop().time
    async with limiter.acquire():
        began = clock()
    async with limiter.acquire():
        waited = clock() - began
    assert 0.05 < waited < 0.5


async def test_waiters_are_served_first_come_first_served(paceline_time: VirtualTime, timeline: Timeline) -> None:
    takers = Takers(Limiter("it", Delay("1s"), store=paceline_time.store), timeline)
    tasks = [takers.start(n) for n in range(10)]
    await paceline_time.advance("1m")
    await asyncio.gather(*tasks)
    assert takers.order == list(range(10))


async def test_a_big_cost_is_not_overtaken_by_small_ones_that_come_later(
    paceline_time: VirtualTime, timeline: Timeline
) -> None:
    takers = Takers(Limiter("it", Rate(10, per="1m"), store=paceline_time.store), timeline)
    tasks = [takers.start("first", cost=3)]
    await paceline_time.advance("1s")
    tasks += [takers.start("big", cost=10), *(takers.start(f"small-{n}") for n in range(3))]
    await paceline_time.advance("3m")
    await asyncio.gather(*tasks)
    assert takers.order == ["first", "big", "small-0", "small-1", "small-2"]
    assert takers.got == [0, 60, 120, 120, 120]


async def test_a_big_cost_is_not_starved_by_another_program_that_takes_small_ones(
    paceline_time: VirtualTime, timeline: Timeline
) -> None:
    store = paceline_time.store
    here = Takers(Limiter("it", Rate(10, per="1m"), store=store), timeline)
    there = Takers(Limiter("it", Rate(10, per="1m"), store=store), timeline)
    small = []
    for _ in range(10):
        small.append(there.start())
        await paceline_time.advance("6s")
    small += [there.start() for _ in range(200)]
    await paceline_time.advance("3s")
    big = here.start(cost=10)
    await paceline_time.advance("10m")
    served = big.done()
    for task in (big, *small):
        task.cancel()
    await asyncio.gather(big, *small, return_exceptions=True)
    assert served


async def test_a_freed_slot_a_lifted_hold_and_other_numbers_wake_a_waiter_at_once(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    takers = Takers(app.limiter("it", Rate(3, per="1h") & Concurrency(1)), timeline)
    permit = await takers.limiter.try_acquire()
    assert permit is not None
    first = takers.start()
    await paceline_time.advance("5s")
    await permit.release()
    await paceline_time.advance("1s")
    await app.hold("it", for_="1h")
    second = takers.start()
    await paceline_time.advance("4s")
    await app.release("it")
    await paceline_time.advance("5s")
    third = takers.start()
    await paceline_time.advance("5s")
    await app.override("it", Rate(4, per="1h"))
    await paceline_time.advance("1s")
    await asyncio.gather(first, second, third)
    assert takers.got == [5, 10, 20]


async def test_the_permit_is_given_back_when_the_block_raises(paceline_time: VirtualTime) -> None:
    limiter = Limiter("it", Concurrency(1), store=paceline_time.store)
    with pytest.raises(ValueError, match="boom"):
        async with limiter.acquire() as permit:
            assert isinstance(permit, Permit)
            raise ValueError("boom")
    assert await limiter.try_acquire() is not None


# refusals charge nothing


async def test_a_timeout_raises_at_its_instant_and_charges_nothing(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = app.limiter("it", Rate(1, per="1m"))
    assert await limiter.try_acquire() is not None
    gave_up: list[float] = []

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with limiter.acquire(timeout="10s"):
                raise AssertionError("it got in")
        gave_up.append(timeline.now)

    waiting = [asyncio.create_task(impatient()) for _ in range(3)]
    await paceline_time.advance("30s")
    await asyncio.gather(*waiting)
    assert gave_up == [10, 10, 10]
    assert (await app.limit_state("it")).used == 1
    await paceline_time.advance("30s")
    assert await limiter.try_acquire() is not None
    assert await limiter.try_acquire() is None


async def test_a_timeout_that_is_long_enough_is_no_timeout(paceline_time: VirtualTime, timeline: Timeline) -> None:
    takers = Takers(Limiter("it", Rate(1, per="1m"), store=paceline_time.store), timeline)
    tasks = [takers.start(timeout="1m") for _ in range(2)]
    await paceline_time.advance("2m")
    await asyncio.gather(*tasks)
    assert takers.got == [0, 60]


async def test_a_timeout_of_zero_asks_once(paceline_time: VirtualTime) -> None:
    limiter = Limiter("it", Rate(1, per="1m"), store=paceline_time.store)
    async with limiter.acquire(timeout=0):
        pass
    with pytest.raises(TimeoutError):
        async with limiter.acquire(timeout=0):
            pass


async def test_a_waiter_that_is_cancelled_charges_nothing_and_the_next_one_goes_on(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    takers = Takers(app.limiter("it", Rate(1, per="1m")), timeline)
    tasks = [takers.start(n) for n in range(4)]
    await paceline_time.advance("10s")
    tasks[1].cancel()
    tasks[2].cancel()
    await paceline_time.advance("1m")
    assert (takers.order, takers.got) == ([0, 3], [0, 60])
    assert [task.cancelled() for task in tasks] == [False, True, True, False]
    assert (await app.limit_state("it")).used == 1


async def test_try_acquire_gives_a_permit_or_none_and_none_charges_nothing(app: App) -> None:
    limiter = app.limiter("it", Rate(2, per="1m") & Concurrency(1))
    permit = await limiter.try_acquire()
    assert isinstance(permit, Permit)
    for _ in range(5):
        assert await limiter.try_acquire() is None
    await permit.release()
    second = await limiter.try_acquire()
    assert second is not None
    await second.release()
    assert await limiter.try_acquire() is None


async def test_try_acquire_with_a_cost_that_does_not_fit_now_leaves_the_room_to_others(app: App) -> None:
    limiter = app.limiter("it", Rate(5, per="1m"))
    assert await limiter.try_acquire(3) is not None
    assert await limiter.try_acquire(3) is None
    assert (await app.limit_state("it")).used == 3
    assert await limiter.try_acquire(2) is not None


# permits are leases


async def test_a_permit_is_released_once_however_often(app: App) -> None:
    limiter = app.limiter("it", Concurrency(2))
    one, two = await limiter.try_acquire(), await limiter.try_acquire()
    assert one is not None and two is not None
    await one.release()
    await one.release()
    assert (await app.limit_state("it")).used == 1
    async with two as entered:
        assert entered is two
    await two.release()
    assert (await app.limit_state("it")).used == 0


async def test_a_permit_is_renewed_for_as_long_as_it_is_held(app: App, paceline_time: VirtualTime) -> None:
    limiter = app.limiter("it", Concurrency(1))
    async with limiter.acquire():
        for _ in range(10):
            await paceline_time.advance("1m")
            assert await limiter.try_acquire() is None
    assert await limiter.try_acquire() is not None


async def die_with_a_permit(store: Any) -> None:
    """What a process leaves behind that acquired a permit and was killed: nobody renews it."""
    grant = await store.acquire([Target("it")], "permit-of-a-dead-process", LEASE * SECOND)
    assert grant.granted


async def test_the_slot_of_a_dead_process_comes_back_when_its_lease_ends(app: App, paceline_time: VirtualTime) -> None:
    limiter = app.limiter("it", Concurrency(1))
    assert await limiter.can_proceed()
    await die_with_a_permit(app.store)
    await paceline_time.advance("29.999s")
    assert await limiter.try_acquire() is None
    await paceline_time.advance("1ms")
    assert await limiter.try_acquire() is not None


async def test_a_waiter_gets_the_slot_of_a_dead_process_at_the_very_instant(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    takers = Takers(app.limiter("it", Concurrency(1)), timeline)
    assert await takers.limiter.can_proceed()
    await die_with_a_permit(app.store)
    await paceline_time.advance("10s")
    waiting = takers.start()
    await paceline_time.advance("2m")
    await waiting
    assert takers.got == [LEASE]


async def test_can_proceed_knows_that_a_dead_process_holds_nothing_any_more(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = app.limiter("it", Concurrency(1))
    assert await limiter.can_proceed()
    await die_with_a_permit(app.store)
    await paceline_time.advance("1m")
    assert await limiter.can_proceed()
    assert timeline.at(await limiter.get_next_available_time()) == 60
    assert (await app.limit_state("it")).used == 0


# one counter with jobs


async def test_permits_and_jobs_share_the_counter_of_one_name(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("openai", Rate(3, per="1m"), tasks=["step"])

    @app.task()
    async def step() -> None: ...

    limiter = app.limiter("openai")
    async with limiter.acquire():
        pass
    await step.enqueue_many([()] * 5)
    async with app.worker():
        await paceline_time.advance("1s")
        assert timeline.starts() == [0, 0]
        assert await limiter.try_acquire() is None
        await paceline_time.advance("2m")
    assert timeline.starts() == [0, 0, 60, 60, 60]


async def test_a_held_permit_keeps_a_job_waiting_and_its_release_starts_it_at_once(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("gpu", Concurrency(1), tasks=["step"])

    @app.task()
    async def step() -> None:
        await paceline_time.sleep("10s")

    takers = Takers(app.limiter("gpu"), timeline)
    permit = await takers.limiter.try_acquire()
    assert permit is not None
    await step.enqueue()
    async with app.worker():
        await paceline_time.advance("5s")
        assert timeline.starts() == []
        await permit.release()
        await paceline_time.advance("1s")
        assert timeline.starts() == [5]
        waiting = takers.start()
        await paceline_time.advance("1m")
        await waiting
    assert takers.got == [15]


async def test_a_limiter_made_elsewhere_with_the_same_name_is_the_same_counter(
    app: App, paceline_time: VirtualTime
) -> None:
    app.limit("openai", Rate(2, per="1m"), tasks=["step"])
    await app.queue().counts()
    limiter = Limiter("openai", Rate(2, per="1m"), store=paceline_time.store)
    assert await limiter.try_acquire() is not None
    assert (await app.limit_state("openai")).used == 1
    assert await app.limiter("openai").try_acquire() is not None
    assert await limiter.try_acquire() is None


async def test_a_limiter_limits_no_job_that_does_not_ask_for_it(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    limiter = app.limiter("private", Rate(1, per="1h"))

    @app.task()
    async def step() -> None: ...

    assert await limiter.try_acquire() is not None
    await step.enqueue_many([()] * 3)
    async with app.worker():
        await paceline_time.advance("1s")
    assert timeline.starts() == [0, 0, 0]


async def test_a_limiter_cannot_get_around_a_limit_of_its_name_by_saying_unlimited(app: App) -> None:
    app.limit("openai", Rate(1, per="1m"), tasks=["step"])
    with pytest.raises(ConfigError, match="'openai'"):
        app.limiter("openai", Unlimited())


# groups


async def test_a_group_of_a_per_group_limit_has_its_own_counter(app: App, paceline_time: VirtualTime) -> None:
    app.limit("tenant", Rate(1, per="1m"), by="group", overrides={"big": Rate(2, per="1m")})
    limiter = app.limiter("tenant")
    got = [await limiter.try_acquire(group=group) is not None for group in ("a", "a", "b", "big", "big", "big")]
    assert got == [True, False, True, True, True, False]

    @app.task()
    async def step() -> None: ...

    await step.using(group="a").enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
    assert paceline_time.starts() == []


async def test_waiters_of_one_group_do_not_wait_for_another_group(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("tenant", Rate(1, per="1m"), by="group")
    takers = Takers(app.limiter("tenant"), timeline)
    tasks = [takers.start((group, n), group=group) for group in ("a", "b") for n in range(2)]
    await paceline_time.advance("2m")
    await asyncio.gather(*tasks)
    assert takers.got == [0, 0, 60, 60]


# the object


async def test_app_limiter_gives_one_object_per_name(app: App) -> None:
    limiter = app.limiter("openai", Rate(1, per="1m"))
    assert isinstance(limiter, Limiter) and limiter.name == "openai"
    assert app.limiter("openai") is app.limiter("openai")
    assert await limiter.try_acquire() is not None
    assert await app.limiter("openai").try_acquire() is None


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"cost": 0}, "cost=0"),
        ({"cost": -1}, "cost=-1"),
        ({"cost": 1.5}, "cost=1.5"),
        ({"cost": True}, "cost=True"),
        ({"group": ""}, "group=''"),
        ({"group": 7}, "group=7"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"timeout": float("nan")}, "timeout=nan"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_wrong_option_of_acquire_is_an_error_that_shows_it(
    app: App, options: dict[str, Any], shown: str
) -> None:
    limiter = app.limiter("it", Rate(5, per="1m"))
    with pytest.raises(ConfigError) as caught:
        async with limiter.acquire(**options):
            pass
    assert shown in str(caught.value)
    if "timeout" not in options:
        with pytest.raises(ConfigError):
            await limiter.try_acquire(**options)
    assert (await app.limit_state("it")).used == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("", Rate(1, per=1)), (5, Rate(1, per=1)), ("a\tb", Rate(1, per=1)), ("it", 5), ("it", Rate)]
)
def test_a_wrong_name_or_kind_of_a_limiter_is_an_error(paceline_time: VirtualTime, name: Any, kind: Any) -> None:
    with pytest.raises(ConfigError):
        Limiter(name, kind, store=paceline_time.store)
