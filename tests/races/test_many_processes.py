"""Processes that do the same at the same moment: one of them is first, the others see what it did, nobody an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from paceline import App

from .adders import EACH, MAX_SIZE, SAME
from .crew import Crew, Member, Place, until
from .program import LIMITS, make_app

PROCESSES = 6
ROUNDS = 12


async def all_at_once(crew: Crew, role: str, number: int = PROCESSES) -> list[dict]:
    """As many processes, let go together; what each of them says that it did."""
    members = [crew.start("adders.py", role) for _ in range(number)]
    await crew.ready(members)
    crew.tell("go", *members)
    await until(lambda: all(done_or_dead(member) for member in members), within=60)
    assert crew.complaints() == []
    return [note for member in members for note in member.notes("done")]


def done_or_dead(member: Member) -> bool:
    return bool(member.notes("done")) or member.process.poll() is not None


async def test_a_group_is_filled_to_exactly_its_size_and_never_beyond(app: App, crew: Crew) -> None:
    sizes: set[int] = set()

    done = await while_looking(app, sizes, all_at_once(crew, "fill"))

    counts = await app.queue().counts()
    print(f"added {[note['added'] for note in done]}, refused {[note['refused'] for note in done]}, {len(sizes)} sizes")
    assert sum(note["added"] for note in done) == MAX_SIZE
    assert counts["waiting"] + counts["delayed"] == MAX_SIZE
    assert max(sizes) <= MAX_SIZE
    assert len(done) == PROCESSES


async def test_a_group_that_is_worked_off_meanwhile_is_never_beyond_its_size(app: App, crew: Crew) -> None:
    sizes: set[int] = set()
    await crew.ready(crew.workers(2))

    done = await while_looking(app, sizes, all_at_once(crew, "bring-through"))

    added = sum(note["added"] for note in done)
    print(f"added {added}, refused {[note['refused'] for note in done]}, sizes up to {max(sizes)}")
    assert max(sizes) <= MAX_SIZE
    assert len(done) == PROCESSES
    assert sum((await app.queue().counts()).values()) == added >= PROCESSES * EACH


async def while_looking(app: App, sizes: set[int], work) -> list[dict]:
    """Look at the size of the group again and again until the work is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        counts = await app.queue().counts()
        sizes.add(counts["waiting"] + counts["delayed"])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.002)
    return await task


@pytest.mark.parametrize("role", ["same-ids", "same-ids-at-once"])
async def test_the_same_ids_give_one_job_each(app: App, crew: Crew, role: str) -> None:
    done = await all_at_once(crew, role)

    seen = [dict(map(tuple, note["jobs"])) for note in done]
    winners = set(seen[0].values())
    print(f"jobs of {len(winners)} processes won")
    assert len(seen) == PROCESSES
    assert all(each == seen[0] for each in seen), "processes do not agree whose job an id is"
    assert sum((await app.queue().counts()).values()) == SAME == len(seen[0])


async def test_the_same_unique_keys_give_one_job_each(app: App, crew: Crew) -> None:
    done = await all_at_once(crew, "same-keys")

    seen = [dict(map(tuple, note["jobs"])) for note in done]
    assert len(seen) == PROCESSES
    assert all(each == seen[0] for each in seen), "processes do not agree which job has a key"
    assert sum((await app.queue().counts()).values()) == SAME == len(set(seen[0].values()))


async def test_the_same_limits_declared_at_once_are_there_once(place: Place, crew: Crew) -> None:
    done = await all_at_once(crew, "declare")

    async with make_app(place.url, place.namespace) as app:
        limits = await app.store.limits()
        assert sorted(limit.name for limit in limits) == sorted(LIMITS)
        assert {limit.name: limit.kind for limit in limits} == {name: kind for name, (kind, _) in LIMITS.items()}
    assert len(done) == PROCESSES


async def test_two_processes_that_open_a_new_store_at_the_same_moment(
    new_place: Callable[[], Place], crew: Crew
) -> None:
    members = [crew.start("adders.py", "open-new") for _ in range(2)]
    await crew.ready(members)
    for number in range(1, ROUNDS + 1):
        place = new_place()
        crew.tell(f"{place.url} {place.namespace}", *members)
        await until(lambda number=number: all(has_done(member, number) for member in members))

        async with make_app(place.url, place.namespace) as app:
            found = {job.id for job in await app.queue().list("waiting")}
        assert found == {member.notes("done")[-1]["job"] for member in members}
        assert len(found) == 2
    assert crew.complaints() == []


def has_done(member: Member, number: int) -> bool:
    assert member.process.poll() is None, member.errors.read_text()
    return len(member.notes("done")) == number
