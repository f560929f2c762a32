"""`async with app`, any number of times: after the last one ends the app is closed until it is entered again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paceline import App, Concurrency, QueueClosed


def make(url: str) -> tuple[App, Any, list[int], list[int]]:
    app = App(url)
    app.limit("one-at-a-time", Concurrency(1), tasks=["note"])
    seen: list[int] = []
    together: list[int] = []

    @app.task()
    async def note(number: int) -> int:
        together.append(1)
        assert len(together) == 1
        await asyncio.sleep(0)
        together.pop()
        seen.append(number)
        return number

    return app, note, seen, together


def test_an_app_is_entered_again_on_other_event_loops_and_its_limits_hold(url: str) -> None:
    app, note, seen, _ = make(url)

    async def life(number: int) -> None:
        async with app:
            jobs = await note.enqueue_many([number, number + 1, number + 2])
            async with app.worker(concurrency=5):
                assert [await job.result(timeout=10) for job in jobs] == [number, number + 1, number + 2]
            assert (await app.limit_state("one-at-a-time")).allowed == 1

    for number in range(0, 9, 3):
        asyncio.run(life(number))
        with pytest.raises(QueueClosed):
            note.enqueue_sync(0)
    assert seen == list(range(9))


async def test_a_store_that_was_emptied_meanwhile_knows_the_limits_again(url: str) -> None:
    app, note, _, _ = make(url)
    async with app:
        await note.enqueue(1)
    other = App(url)
    assert await other.drop_limit("one-at-a-time")

    async with app:
        assert (await app.limit_state("one-at-a-time")).kind == Concurrency(1)


async def test_blocks_in_each_other_close_the_app_when_the_last_one_ends(url: str) -> None:
    app, note, _, _ = make(url)

    async with app:
        async with app:
            await note.enqueue(1)
        await note.enqueue(2)
    with pytest.raises(QueueClosed):
        await note.enqueue(3)

    async def life() -> None:
        async with app:
            await asyncio.sleep(0.01)
            await note.enqueue(4)

    await asyncio.gather(life(), life(), life())
    with pytest.raises(QueueClosed):
        await note.enqueue(5)


async def test_closing_twice_is_once_and_what_comes_later_is_told(url: str) -> None:
    app, note, _, _ = make(url)
    await app.close()
    await app.close()

    for call in (note.enqueue(1), note.enqueue_many([1]), app.queue().add("note")):
        with pytest.raises(QueueClosed, match="async with app"):
            await call

    async with app:
        await note.enqueue(1)
        await app.close()
        with pytest.raises(QueueClosed):
            await note.enqueue(1)
    async with app:
        await note.enqueue(1)


async def test_another_app_on_the_same_url_goes_on(url: str) -> None:
    first, note, _, _ = make(url)
    second = App(url)

    @second.task()
    async def other(number: int) -> int:
        return number

    async with second:
        async with second.worker():
            async with first:
                await note.enqueue(1)
            job = await other.enqueue(5)
            assert await job.result(timeout=10) == 5
        async with first:
            await note.enqueue(2)
        assert await second.get(job.id) is not None


async def test_an_app_that_could_not_be_opened_may_be_entered_later(tmp_path: Any) -> None:
    app, note, _, _ = make(f"sqlite:///{tmp_path / 'missing' / 'jobs.db'}")
    from paceline import StoreUnavailable

    with pytest.raises(StoreUnavailable):
        async with app:
            pass
    (tmp_path / "missing").mkdir()

    async with app:
        await note.enqueue(1)
    with pytest.raises(QueueClosed):
        await note.enqueue(1)
