"""How late handlers begin, for people: in a limit's state, in `status`, in the words of `doctor`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from paceline import App, Concurrency, Delay, Rate
from paceline.cli.doctor import complaints
from paceline.cli.overview import look
from paceline.cli.status import as_data, as_text
from paceline.cli.target import Target
from paceline.stores import open_store
from paceline.stores.interface import Lag, WorkerRecord


async def test_the_guard_in_force_is_part_of_a_limits_state():
    app = App(open_store("memory://"))
    app.limit("second", Rate(5, per="1s"))
    app.limit("own", Rate(5, per="1s", guard="200ms") & Rate(50, per="1m", guard=0))
    app.limit("none", Concurrency(5) & Delay("1s"))
    app.limit("stamps", Rate(5, per="1s", guard=0))

    found = {name: (await app.limit_state(name)).guard for name in ("second", "own", "none", "stamps")}

    milliseconds = {name: guard / timedelta(milliseconds=1) for name, guard in found.items()}
    assert milliseconds == {"second": 20, "own": 200, "none": 0, "stamps": 0}


async def test_a_clock_that_a_test_moves_needs_no_guard(paceline_time):
    app = App(paceline_time.store)
    app.limit("second", Rate(5, per="1s"))

    assert (await app.limit_state("second")).guard == timedelta()


async def test_what_workers_say_of_their_handlers_is_part_of_a_limits_state():
    store = open_store("memory://")
    app = App(store)
    app.limit("mail", Rate(5, per="1s"), tasks=["send", "digest"])
    lags = {"send": Lag(1_000, 80_000, 3), "other": Lag(9, 9, 9)}
    await store.register(WorkerRecord(id="one", queues=("default",), lags=lags))
    await store.register(WorkerRecord(id="two", queues=("default",), lags={"send": Lag(2_000, 40_000, 1)}))

    state = await app.limit_state("mail")

    assert state.lags == {"send": Lag(2_000, 80_000, 4)}
    assert state.open == 0


async def test_a_worker_says_how_late_its_handlers_begin(monkeypatch, caplog):
    store = open_store("memory://")
    monkeypatch.setattr("paceline.upkeep.lags.EVERY", 50_000)
    claim = store.claim

    async def slow(*args):
        answer = await claim(*args)
        await asyncio.sleep(0.03 if answer.jobs else 0)
        return answer

    monkeypatch.setattr(store, "claim", slow)
    app = App(store)
    app.limit("mail", Rate(50, per="1s", guard="10ms"), tasks=["send"])

    @app.task()
    async def send() -> None: ...

    await send.enqueue_many([()] * 30)
    async with app.worker():
        async with asyncio.timeout(10):
            while not (found := (await app.limit_state("mail")).lags):  # noqa: ASYNC110  # said every so often
                await asyncio.sleep(0.02)

    assert found["send"].late >= 10 and found["send"].p50 >= 30_000
    assert "handlers of task send begin late" in caplog.text


async def test_doctor_and_status_show_handlers_that_begin_later_than_a_guard_allows():
    store = open_store("memory://")
    app = App(store)
    app.limit("mail", Rate(5, per="1s"), tasks=["send", "quick"])
    await app.limit_state("mail")
    lags = {"send": Lag(3_000, 80_000, 3), "quick": Lag(1_000, 4_000, 0)}
    await store.register(WorkerRecord(id="one", queues=("default",), lags=lags, tasks=frozenset({"send", "quick"})))
    target = Target(store, app, {})
    seen = await look(store)

    (said,) = complaints(target, seen)

    assert "handlers of task 'send' begin 80 ms late" in said and "guard of 20 ms" in said and "longer guard" in said
    assert any("3.0 ms (99 %: 80.0 ms), 3 late" in line for line in as_text(target, seen))
    data = as_data(target, seen)
    assert (data["limits"][0]["guard"], data["limits"][0]["open"]) == (20_000, 0)
    assert data["workers"][0]["lags"]["send"] == Lag(3_000, 80_000, 3)
