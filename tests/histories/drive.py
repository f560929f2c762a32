"""Drive a history on a store beside the reference, new or kept, and cut one down that tells them apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass

from .generate import LENGTH, Generator
from .pair import Different, Pair
from .stores import OPENERS
from .words import Step


@dataclass(frozen=True)
class Failure:
    """A history whose last step gave different answers."""

    store: str
    steps: list[Step]
    says: str

    def __str__(self) -> str:
        lines = [
            f"{self.store} and memory differ:",
            *(f"  {json.dumps(step, ensure_ascii=False)}" for step in self.steps),
        ]
        return "\n".join([*lines, self.says])


def drive_seed(store: str, seed: int, length: int = LENGTH) -> Failure | None:
    """The history of a seed; what went wrong, if something did."""
    return asyncio.run(_drive_seed(store, seed, length))


async def _drive_seed(store: str, seed: int, length: int) -> Failure | None:
    generator, pair = Generator(seed), Pair(OPENERS[store])
    await pair.open()
    try:
        for step in generator.begin():
            await pair.perform(step)
        for _ in range(length):
            await pair.perform(generator.step(pair))
        await pair.perform(["read_all"])
    except Exception as error:
        return Failure(store, pair.steps, _said(error))
    finally:
        await pair.close()
    return None


def drive_steps(store: str, steps: Iterable[Step]) -> Failure | None:
    """A history that is known; the steps after a difference are not performed."""
    return asyncio.run(_drive_steps(store, steps))


async def _drive_steps(store: str, steps: Iterable[Step]) -> Failure | None:
    pair = Pair(OPENERS[store])
    await pair.open()
    try:
        for step in steps:
            await pair.perform(step)
    except Exception as error:
        return Failure(store, pair.steps, _said(error))
    finally:
        await pair.close()
    return None


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, Different) else f"{type(error).__name__}: {error}"


def _kind(says: str) -> str:
    """What a difference is about, without its numbers: a cut history must differ in the same way."""
    first = says.splitlines()[0] if says else ""
    return "".join(letter for letter in first.split(": memory has")[0] if not letter.isdigit())


def reduce(failure: Failure, tries: int = 600) -> Failure:
    """The same difference with as few steps, and as few jobs in each, as single cuts can reach."""
    best, wanted = failure, _kind(failure.says)

    def differs(steps: list[Step]) -> bool:
        nonlocal best, tries
        tries -= 1
        found = drive_steps(failure.store, steps)
        if found is not None and _kind(found.says) == wanted:
            best = found
            return True
        return False

    size = max(len(best.steps) // 2, 1)
    while tries > 0:
        place, cut = 0, False
        while place < len(best.steps) and tries > 0:
            if differs(best.steps[:place] + best.steps[place + size :]):
                cut = True
            else:
                place += size
        if size == 1 and not cut:
            break
        size = max(size // 2, 1)
    _thin_lists(best, differs)
    return best


def _thin_lists(failure: Failure, differs: object) -> None:
    assert callable(differs)
    steps = failure.steps
    for place in range(len(steps)):
        for word in range(1, len(steps[place])):
            if isinstance(steps[place][word], list):
                for index in reversed(range(len(steps[place][word]))):
                    thinner = json.loads(json.dumps(steps))
                    del thinner[place][word][index]
                    if (thinner[place][word] or steps[place][0] == "claim") and differs(thinner):
                        steps = thinner
