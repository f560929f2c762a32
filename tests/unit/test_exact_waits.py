"""Who waits for an instant of a limit is awake at that instant, and burns no processor time until then."""

from __future__ import annotations

import asyncio
import time

from paceline.clock import EARLY, SECOND, SystemClock, wait_exactly


async def test_a_wait_ends_at_its_instant_and_never_before() -> None:
    clock = SystemClock()
    late = []
    for number in range(30):
        until = clock.now() + 3_000 + 137 * number
        assert not await wait_exactly(clock, asyncio.Event(), until)
        late.append(clock.now() - until)

    assert min(late) >= 0
    # On a busy machine most of them may be late; a timer of whole milliseconds never comes that close this often.
    assert sorted(late)[7] < 400


async def test_a_wait_that_the_loop_rounds_twice_ends_at_its_instant_too() -> None:
    # 18 * 1e-3 is a little more than 0.018, so an event loop waits 19 milliseconds instead of 17.1.
    clock = SystemClock()
    late = []
    for _ in range(20):
        until = clock.now() + EARLY + 17_100
        assert not await wait_exactly(clock, asyncio.Event(), until)
        late.append(clock.now() - until)

    assert min(late) >= 0
    assert sorted(late)[5] < 400


async def test_an_event_ends_the_wait_at_once() -> None:
    clock, event = SystemClock(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, event.set)

    began = time.monotonic()
    assert await wait_exactly(clock, event, clock.now() + 60 * SECOND)

    assert time.monotonic() - began < 10
    assert await wait_exactly(clock, event, clock.now() - 1)


async def test_waiting_takes_next_to_no_processor_time() -> None:
    clock = SystemClock()

    used = time.process_time()
    await wait_exactly(clock, asyncio.Event(), clock.now() + SECOND // 2)

    assert time.process_time() - used < 0.05
