"""Random histories on every store beside the memory store: the same answers, step by step.

The seeds here are always the same ones. `make soak` takes new ones and keeps the histories that differ, and these are
driven here too, on every store.
"""

from __future__ import annotations

from typing import Any

import pytest

from paceline.stores import open_store

from .drive import Failure, drive_seed, drive_steps, reduce
from .generate import FEATURES, Generator
from .kept import Kept, kept
from .pair import Pair, differences
from .stores import OPENERS
from .words import Step

SEEDS = {"sqlite": range(80), "sqlite-two-handles": range(40), "postgres": range(60), "redis": range(160)}
AT_ONCE = 10
"""Histories in one test: they are short, and most of the time of a test is what surrounds it."""


def parts() -> list[tuple[str, int]]:
    return [(store, seeds[first]) for store, seeds in SEEDS.items() for first in range(0, len(seeds), AT_ONCE)]


@pytest.mark.parametrize(("store", "first"), parts())
def test_a_history_is_the_same_on_a_store_and_in_memory(store: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        failure = drive_seed(store, seed)
        assert failure is None, f"seed {seed}: {reduce(failure, tries=100)}"


@pytest.mark.parametrize("store", OPENERS)
@pytest.mark.parametrize("history", kept(), ids=lambda history: f"{history.store}-{history.seed}")
def test_what_once_told_a_store_and_memory_apart_no_longer_does(history: Kept, store: str) -> None:
    failure = drive_steps(store, history.steps)

    assert failure is None, str(failure)


# the generator itself


def test_every_store_has_histories() -> None:
    assert SEEDS.keys() == OPENERS.keys()


def test_every_feature_occurs_with_others_and_alone() -> None:
    drawn = [Generator(seed).features for seed in range(40)]

    assert set().union(*drawn) == set(FEATURES)
    assert any(not features for features in drawn)


async def test_one_seed_is_one_history() -> None:
    async def history(seed: int) -> list[Step]:
        generator, pair = Generator(seed), Pair(lambda clock: open_store("memory://", clock=clock))
        for _ in range(40):
            await pair.perform(generator.step(pair))
        return pair.steps

    assert await history(7) == await history(7) != await history(8)


class Forgetful:
    """A memory store that forgets one job in three."""

    def __init__(self, clock: Any) -> None:
        self.real, self.inserted = open_store("memory://", clock=clock), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def insert(self, jobs: list[Any]) -> Any:
        self.inserted += 1
        return await self.real.insert(jobs[:-1] if self.inserted % 3 == 0 and len(jobs) > 1 else jobs)


def test_a_store_that_forgets_a_job_is_found_and_its_history_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPENERS, "forgetful", Forgetful)
    found = next(failure for seed in range(40) if (failure := drive_seed("forgetful", seed)))

    smallest = reduce(found)

    assert isinstance(smallest, Failure)
    assert [name for name, *_ in smallest.steps] == ["insert", "insert", "insert"]


def test_what_differs_is_named() -> None:
    assert differences({"jobs": [1, {"id": 2}]}, {"jobs": [1, {"id": 3}]}) == [
        ".jobs[1].id: memory has 2, the store has 3"
    ]


async def test_every_step_that_may_be_kept_can_be_performed() -> None:
    pair = Pair(OPENERS["sqlite"])
    steps: list[Step] = [
        ["insert", [{"id": "j", "queue": "q", "task": "a"}]],
        ["read_all"],
        ["reopen"],
        ["counts", "q"],
    ]
    await pair.open()
    for step in steps:
        await pair.perform(step)
    await pair.close()

    assert pair.steps == steps
