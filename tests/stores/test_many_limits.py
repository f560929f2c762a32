"""A thousand tasks with a limit each, where Python decides: no step asks every limit about every task."""

from __future__ import annotations

import pytest

from paceline.job import NewJob
from paceline.limits import Limit, Rate
from paceline.stores import open_store
from paceline.stores.interface import Ask

LIMITS = 1000
KIND = Rate(5, per="1h")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_limits_are_asked_about_their_own_tasks_only(kind, tmp_path, monkeypatch):
    store = open_store("memory://" if kind == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    await store.set_limits([Limit(f"of {number}", KIND, tasks=[f"task {number}"]) for number in range(LIMITS)])
    asked: list[str] = []
    meets = Limit.meets
    monkeypatch.setattr(Limit, "meets", lambda limit, *about: asked.append(limit.name) or meets(limit, *about))

    async def asked_for(step) -> int:
        asked.clear()
        await step
        return len(asked)

    ask = Ask(queues=("line",), slots=5, worker="w", lease=60_000_000)
    jobs = [NewJob(f"{number}", "line", f"task {number}") for number in range(LIMITS)]
    counts = {
        "add": await asked_for(store.insert(jobs)),
        "claim": await asked_for(store.claim(ask)),
        "explain": await asked_for(store.standing("500")),
        "another limit": await asked_for(store.set_limits([Limit("more", KIND, tasks=["task 1"])])),
        "pause": await asked_for(store.pause("line", "task 2", None, True)),
    }
    await store.close()

    assert {name: number <= 3 * LIMITS for name, number in counts.items()} == dict.fromkeys(counts, True), counts
    assert counts["claim"] + counts["explain"] <= 10
