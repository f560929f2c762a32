"""Workers in virtual time: `time` is the clock of every store that these tests use unless they say otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from paceline.testing import VirtualTime

from ..servers.real_time import opens as opens
from ..servers.real_time import real_store as real_store

MOST_IN_VAIN = 300
"""More claims than this that start nothing, at one instant, are a loop that never sleeps."""


@pytest.fixture
def time(paceline_time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualTime]:
    """Virtual time on a memory store; in no test may a worker ask over and over again instead of sleeping."""
    in_vain: Counter[int] = Counter()
    claim = paceline_time.store.claim

    async def counted(ask, finishes=()):
        answer = await claim(ask, finishes)
        if not answer.jobs and not finishes:
            in_vain[answer.now] += 1
        return answer

    monkeypatch.setattr(paceline_time.store, "claim", counted)
    yield paceline_time
    assert max(in_vain.values(), default=0) <= MOST_IN_VAIN, "a worker asked the store in a loop without sleeping"
