"""A store that goes away while a limiter is in use: whoever waits for a permit waits for the store, too."""

from __future__ import annotations

import asyncio

import pytest

from paceline import App, Concurrency, Rate, StoreUnavailable
from paceline.lifecycle import outage
from paceline.stores.interface import Store

from .test_cancelled_callers import comes_back, used

SOON = 10.0


@pytest.fixture(autouse=True)
def pauses_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE", 10_000)


class Away:
    """Calls of one step fail while the store is away: before it was sent, or after it was done."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, name: str, *, done: bool = False) -> None:
        self.lasts = True
        self.tries = 0
        self.tried = asyncio.Event()
        step = getattr(store, name)

        async def fails(*args, **kwargs):
            if not self.lasts:
                return await step(*args, **kwargs)
            if done:
                await step(*args, **kwargs)
            self.tries += 1
            if self.tries >= 3:
                self.tried.set()
            raise StoreUnavailable("the server is away")

        monkeypatch.setattr(store, name, fails)

    async def ends_after_three_tries(self) -> None:
        await asyncio.wait_for(self.tried.wait(), SOON)
        self.lasts = False


async def test_who_waits_for_a_permit_waits_for_the_store(real_store, monkeypatch, caplog):
    app = App(real_store)
    limiter = app.limiter("api", Rate(1, per="1h"))
    await used(app, "api")
    away = Away(real_store, monkeypatch, "acquire")

    async def acquires() -> None:
        async with limiter.acquire():
            pass

    caller = asyncio.create_task(acquires())
    await away.ends_after_three_tries()
    await asyncio.wait_for(caller, SOON)

    assert await used(app, "api") == 1
    said = [record.message for record in caplog.records if record.name == "paceline.limits"]
    assert ["cannot ask" in line for line in said] == [True, False], said
    assert "the store is back" in said[-1]


async def test_who_waits_is_served_first_when_the_store_is_back(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("api", Concurrency(1))
    await used(app, "api")
    away = Away(real_store, monkeypatch, "acquire")
    order: list[int] = []

    async def acquires(number: int) -> None:
        async with limiter.acquire():
            order.append(number)

    callers = [asyncio.create_task(acquires(number)) for number in range(5)]
    await away.ends_after_three_tries()
    await asyncio.wait_for(asyncio.gather(*callers), SOON)

    assert order == [0, 1, 2, 3, 4]


async def test_a_grant_whose_answer_got_lost_is_given_back_and_the_next_try_is_granted(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(3))
    await used(app)
    away = Away(real_store, monkeypatch, "acquire", done=True)
    held = asyncio.Event()
    leave = asyncio.Event()

    async def acquires() -> None:
        async with limiter.acquire():
            held.set()
            await leave.wait()

    caller = asyncio.create_task(acquires())
    await away.ends_after_three_tries()
    await asyncio.wait_for(held.wait(), SOON)
    async with asyncio.timeout(SOON):
        while await used(app) != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)

    assert await used(app) == 1  # what is given back late is not the permit that is held
    leave.set()
    await caller
    await comes_back(app)


async def test_a_store_that_is_away_when_the_timeout_is_over_is_said(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("api", Rate(1, per="1h"))
    await used(app, "api")
    away = Away(real_store, monkeypatch, "acquire")

    with pytest.raises(StoreUnavailable, match="away"):
        async with limiter.acquire(timeout="200ms"):
            raise AssertionError("there was no permit")

    assert away.tries > 1
    assert await used(app, "api") == 0


async def test_a_limit_that_stays_full_is_a_timeout_also_when_the_store_is_away_at_the_end(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(1))
    permit = await limiter.try_acquire()
    assert permit is not None
    away = Away(real_store, monkeypatch, "give_back")

    with pytest.raises(TimeoutError, match="nothing was charged"):
        async with limiter.acquire(timeout="50ms"):
            raise AssertionError("there was no permit")
    # A permit that is held is renewed, also on a server that later tests use.
    away.lasts = False
    await permit.release()


async def test_a_block_that_ends_while_the_store_is_away_is_no_error_and_its_slot_comes_back(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("db", Concurrency(1))
    async with limiter.acquire():
        away = Away(real_store, monkeypatch, "give_back")

    assert await used(app) == 1
    await away.ends_after_three_tries()
    await comes_back(app)


async def test_a_closed_app_waits_for_no_store(real_store, monkeypatch):
    app = App(real_store)
    limiter = app.limiter("api", Rate(1, per="1h"))
    await used(app, "api")
    away = Away(real_store, monkeypatch, "acquire")

    async def acquires() -> None:
        async with limiter.acquire():
            pass

    caller = asyncio.create_task(acquires())
    await asyncio.wait_for(away.tried.wait(), SOON)
    await app.close()

    with pytest.raises(StoreUnavailable, match="away"):
        await asyncio.wait_for(caller, SOON)


async def test_who_asks_for_an_answer_now_hears_that_the_store_is_away(real_store, monkeypatch):
    limiter = App(real_store).limiter("api", Rate(1, per="1h"))
    await limiter.can_proceed()
    away = Away(real_store, monkeypatch, "acquire")

    with pytest.raises(StoreUnavailable):
        await limiter.try_acquire()

    assert away.tries == 1
