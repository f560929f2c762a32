"""The tests of wake-ups notice a channel that fails: with each of these faults every sleeper reacts late."""

from __future__ import annotations

import pytest

from .faults import DEAD, IGNORES
from .reactions import at_once, reactions_together
from .sleepers import SCENARIOS, Stage

FAULTS = {"ignores everything": IGNORES, "is dead": DEAD}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted before anybody listens."""
    FAULTS[request.param][kind](monkeypatch)


@pytest.mark.parametrize("kind", IGNORES, indirect=True)
async def test_nobody_reacts_at_once_whose_channel(fault: None, stage: Stage):
    seconds = await reactions_together(stage)

    assert seconds.keys() == SCENARIOS.keys()
    assert [name for name, each in seconds.items() if at_once([each])] == []
