"""How soon sleepers react to what somebody else does, and what counts as at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from statistics import median

from .sleepers import SCENARIOS, Scenario, Stage, Trial

AT_ONCE = 0.3
"""Seconds within which a sleeper reacts, in the median: a busy machine may let it wait for a processor once."""
AT_MOST = 5.0
"""Seconds within which it always reacts: half the time until the first poll that could find the same thing."""
LATE = 0.6
"""Seconds after which somebody who did not react was not woken."""


def at_once(seconds: Sequence[float]) -> bool:
    """True when these are reactions of somebody who was woken, and not of somebody who looked in time."""
    return median(seconds) < AT_ONCE and max(seconds) < AT_MOST


async def reactions(stage: Stage, scenario: Scenario, times: int) -> list[float]:
    """The seconds of each reaction, one sleeper after the other."""
    seconds = []
    for _ in range(times):
        async with scenario(stage) as trial:
            await asyncio.sleep(trial.settles)
            seconds.append(await _reaction(trial, await stage.other.does(trial.deed, **trial.words), AT_MOST))
        if seconds[-1] == math.inf:
            break
    return seconds


async def reactions_together(stage: Stage, names: Iterable[str] = SCENARIOS) -> dict[str, float]:
    """One reaction to each deed, all at the same time: where nobody is woken, everybody is waited for only once."""
    async with AsyncExitStack() as stack:
        trials = {name: await stack.enter_async_context(SCENARIOS[name](stage)) for name in names}
        await asyncio.sleep(max(trial.settles for trial in trials.values()))
        began = {name: await stage.other.does(trial.deed, **trial.words) for name, trial in trials.items()}
        return {name: await _reaction(trial, began[name], LATE) for name, trial in trials.items()}


async def reactions_in_turn(
    stage: Stage, names: Iterable[str], disturb: Callable[[], Awaitable[None]], within: float = AT_MOST
) -> dict[str, float]:
    """The reactions of sleepers that something disturbed all together, to one deed after the other."""
    async with AsyncExitStack() as stack:
        trials = {name: await stack.enter_async_context(SCENARIOS[name](stage)) for name in names}
        await asyncio.sleep(max(trial.settles for trial in trials.values()))
        await disturb()
        seconds = {}
        for name, trial in trials.items():
            assert not trial.reacted.is_set(), f"{name}: before anything was done"
            seconds[name] = await _reaction(trial, await stage.other.does(trial.deed, **trial.words), within)
            await asyncio.sleep(trial.settles)
        return seconds


async def _reaction(trial: Trial, began: float, within: float) -> float:
    """Seconds between the instant at which there was something to do and the reaction; endless when none comes."""
    there = began + trial.due_after
    try:
        await asyncio.wait_for(trial.reacted.wait(), max(there + within - time.monotonic(), 0.01))
    except TimeoutError:
        return math.inf
    return trial.at - there
