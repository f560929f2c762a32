"""A sleeper reacts at once to what another process does, whatever it is: nothing here is found by a poll."""

from __future__ import annotations

import pytest

from .reactions import at_once, reactions
from .sleepers import SCENARIOS, Stage

TIMES = 3
OFTEN = 7


@pytest.mark.parametrize("deed", SCENARIOS)
async def test_a_sleeper_reacts_at_once_when(stage: Stage, deed: str):
    seconds = await reactions(stage, SCENARIOS[deed], OFTEN if deed == "a_job_arrives" else TIMES)

    print(f"{deed}: {[f'{each * 1000:.1f} ms' for each in sorted(seconds)]}")
    assert at_once(seconds), seconds
