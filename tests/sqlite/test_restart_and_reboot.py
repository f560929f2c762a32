"""What survives closing and opening again, and what a start of the machine or a wrong wall clock cannot break."""

from __future__ import annotations

import time
from itertools import count, pairwise
from typing import Any

import pytest

from paceline import App, Concurrency, Delay, EvenlySpaced, Group, GroupFull, Queue, Rate, Unique, Worker
from paceline.clock import Micros, to_datetime
from paceline.job import JobState, NewJob
from paceline.limits import Backoff, Kind, Limit
from paceline.stores.interface import Finish, Hold, Lease, Note, Outcome, Override, Target
from paceline.stores.sqlite import clock as clocks

from ..clocks import HandClock
from .helpers import HOUR, MINUTE, SECOND, Done, ask_again_at, eventually, start, working

DAY = 24 * HOUR


class Machine:
    """A store on this test's file; `await machine.restart()` closes it and opens it again as a new process does."""

    def __init__(self, opener: Any, **options: Any) -> None:
        self._opener = opener
        self._options = options
        self.store = opener(**options)

    async def restart(self) -> Any:
        await self.store.close()
        self.store = self._opener(**self._options)
        await self.store.open()
        return self.store

    @property
    def queue(self) -> Queue:
        return Queue("line", store=self.store)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def machine(opener, clock) -> Machine:
    """On a clock that the test moves."""
    return Machine(opener, clock=clock)


async def declare(store: Any, kind: Kind, name: str = "api", **options: Any) -> None:
    await store.set_limits([Limit(name, kind, **options)])


# closing and opening again


@pytest.mark.parametrize(
    ("kind", "starts", "opens_after"),
    [
        (Rate(3, per="1m"), 3, MINUTE - 2 * SECOND),
        (Rate(3, per="1m", guard="5s"), 3, MINUTE + 3 * SECOND),
        (Delay("10s"), 1, 10 * SECOND),
        (EvenlySpaced(7, per="1m"), 1, 8_571_429),
        (Rate(9, per="1m") & Delay("10s"), 1, 10 * SECOND),
    ],
    ids=repr,
)
async def test_windows_and_spacings_go_on_where_they_were(machine, clock, kind, starts, opens_after):
    await declare(machine.store, kind)
    await machine.queue.add_many([("work", number) for number in range(20)])
    for place in range(starts):
        assert len(await start(machine.store)) == 1
        clock.at += SECOND if place < starts - 1 else 0
    opens_at = clock.at + opens_after
    assert await ask_again_at(machine.store) == opens_at

    store = await machine.restart()
    assert await ask_again_at(store) == opens_at
    clock.at = opens_at - 1
    store = await machine.restart()
    assert await start(store) == []
    clock.at = opens_at
    assert len(await start(await machine.restart())) == 1


async def test_a_long_history_of_starts_is_counted_exactly_after_each_restart(machine, clock):
    await declare(machine.store, Rate(5, per="10s"))
    await machine.queue.add_many([("work", number) for number in range(120)])
    starts: list[Micros] = []
    for _ in range(15):
        store = await machine.restart()
        starts += [record.started_at for record in await start(store, 2)]
        clock.at += SECOND * 3 // 2

    assert all(later - earlier >= 10 * SECOND for earlier, later in zip(starts, starts[5:], strict=False))
    assert len(starts) >= 10


async def test_leases_and_fences_survive_a_restart(machine, clock):
    await declare(machine.store, Concurrency(1))
    await machine.queue.add_many([("work", 1), ("work", 2)])
    (held,) = await start(machine.store, lease=MINUTE)

    store = await machine.restart()
    assert await start(store) == []
    extended = await store.extend("worker", [Lease(held.id, held.fence)], 2 * MINUTE)
    assert (extended.lost, extended.cancel) == ([], [])
    store = await machine.restart()
    assert await ask_again_at(store) == clock.at + 2 * MINUTE

    clock.at += 2 * MINUTE
    store = await machine.restart()
    (again,) = await start(store)
    assert (again.id, again.crashes) == (held.id, 1)
    assert await store.finish([Finish(id=held.id, fence=held.fence, outcome=Outcome.COMPLETED)]) == [held.id]
    assert await store.note([Note(id=held.id, fence=held.fence, log="late")]) == [held.id]
    assert await store.finish([Finish(id=again.id, fence=again.fence, outcome=Outcome.COMPLETED)]) == []


async def test_a_claim_whose_answer_was_lost_is_answered_again_after_a_restart(machine):
    await machine.queue.add_many([("work", 1), ("work", 2), ("work", 3)])
    first = await start(machine.store, 2, claim_id="claim-1")

    again = await start(await machine.restart(), 2, claim_id="claim-1")

    assert [(record.id, record.fence) for record in again] == [(record.id, record.fence) for record in first]
    assert (await machine.queue.counts())["active"] == 2


async def test_permits_survive_a_restart_and_can_be_given_back(machine, clock):
    await declare(machine.store, Concurrency(1))
    assert (await machine.store.acquire([Target("api")], "permit", MINUTE)).granted

    store = await machine.restart()
    assert not (await store.acquire([Target("api")], "other", MINUTE)).granted
    await store.give_back(["permit"])
    assert (await (await machine.restart()).acquire([Target("api")], "other", MINUTE)).granted


async def test_holds_survive_a_restart_with_their_reasons(machine, clock):
    await declare(machine.store, Rate(5, per="1m"))
    await declare(machine.store, Rate(5, per="1m"), "tenant", by="group")
    holds = [Hold(limit="api", for_=MINUTE, reason="maintenance"), Hold(limit="tenant", for_=HOUR)]
    await machine.store.hold(holds)

    store = await machine.restart()
    assert (await store.usage("api", None)).hold_until == clock.at + MINUTE
    assert (await store.usage("tenant", "never seen")).hold_until == clock.at + HOUR
    await machine.queue.add("work", group="never seen")
    clock.at += MINUTE
    assert await ask_again_at(await machine.restart()) == clock.at - MINUTE + HOUR


async def test_the_backoff_after_refusals_goes_on_counting_after_a_restart(machine, clock):
    await declare(machine.store, Rate(100, per="1s"), backoff=Backoff(initial="1s", maximum="1h"))
    waits: list[Micros] = []
    for _ in range(5):
        store = await machine.restart()
        await store.hold([Hold(limit="api", jitter=0.0)])
        until = (await store.usage("api", None)).hold_until
        waits.append((until - clock.at) // SECOND)
        clock.at = until

    assert waits == [1, 2, 4, 8, 16]


async def test_turns_go_on_where_they_were(machine):
    groups = ["a", "b", "c", "d"]
    await machine.queue.add_many([("work", None, {"group": group}) for group in groups for _ in range(3)])
    order: list[str] = []
    for _ in range(12):
        order += [record.group for record in await start(await machine.restart())]

    assert [order[place : place + 4] for place in range(0, 12, 4)] == [groups] * 3


async def test_the_room_that_a_big_job_has_reserved_stays_reserved(machine, clock):
    await declare(machine.store, Rate(10, per="1m"))
    await machine.queue.add_many([("small", number, {"group": f"g{number}"}) for number in range(9)])
    assert len(await start(machine.store, 9)) == 9
    big = await machine.queue.add("big", cost=10, group="big")
    await start(machine.store)
    clock.at += SECOND
    await machine.queue.add("small", group="late")

    store = await machine.restart()
    assert await start(store, 5) == [], "one would fit, but the room is kept"
    clock.at += MINUTE
    assert [record.id for record in await start(await machine.restart(), 5)] == [big.id]


async def test_pauses_of_queue_task_and_group_survive_a_restart(machine):
    queue = machine.queue
    await queue.add_many([("mail", 1), ("sms", 2), ("sms", 3, {"group": "acme"})])
    await Queue("other", store=machine.store).add("work")
    await Queue("other", store=machine.store).pause()
    await queue.pause(task="mail")
    await queue.pause(group="acme")

    store = await machine.restart()
    assert await start(store, 5, queue="other") == []
    assert [record.data for record in await start(store, 5)] == [b"2"]
    await machine.queue.resume(task="mail")
    assert [record.data for record in await start(await machine.restart(), 5)] == [b"1"]
    await machine.queue.resume(group="acme")
    assert [record.data for record in await start(await machine.restart(), 5)] == [b"3"]


async def test_delayed_jobs_start_at_their_time_after_a_restart(machine, clock):
    await machine.queue.add_many([("work", number, {"delay": f"{number}s"}) for number in (30, 10, 20)])

    order = []
    for _ in range(3):
        store = await machine.restart()
        clock.at = await ask_again_at(store)
        order += [(record.data, clock.at % MINUTE // SECOND) for record in await start(store, 5)]

    began = 1_000_000_000 % 60
    assert order == [(str(number).encode(), (began + number) % 60) for number in (10, 20, 30)]


async def test_an_operators_numbers_survive_a_restart_and_end_when_they_were_to(machine, clock):
    await declare(machine.store, Rate(1, per="1h"))
    await machine.store.override(Override(limit="api", kind=Rate(3, per="1h"), reason="sale"), MINUTE)
    await machine.queue.add_many([("work", number) for number in range(9)])

    store = await machine.restart()
    assert [(found.reason, found.expires_at) for found in await store.overrides()] == [("sale", clock.at + MINUTE)]
    assert len(await start(store, 9)) == 3
    clock.at += MINUTE
    store = await machine.restart()
    assert await store.overrides() == []
    assert (await store.usage("api", None)).allowed == 1
    assert await start(store, 9) == []


async def test_unique_keys_job_ids_and_group_sizes_survive_a_restart(machine, clock):
    options: dict[str, Any] = {"unique": Unique("key", ttl="1m"), "group": Group("acme", max_size=1)}
    first = await machine.queue.add("work", 1, **options)

    await machine.restart()
    assert (await machine.queue.add("work", 2, **options)).id == first.id
    assert (await machine.queue.add("work", 2, job_id=first.id)).data == 1
    with pytest.raises(GroupFull):
        await machine.queue.add("work", group=Group("acme", max_size=1))
    clock.at += MINUTE
    await machine.restart()
    assert (await machine.queue.add("work", 3, unique=Unique("key", ttl="1m"))).id != first.id


async def test_finished_jobs_keep_result_error_progress_and_log(machine):
    queue = machine.queue
    jobs = await queue.add_many([("work", number, {"attempts": 2, "priority": -number}) for number in range(2)])
    failed, completed = await start(machine.store, 2)
    note = Note(id=failed.id, fence=failed.fence, progress=40.0, message="half way", log="line")
    await machine.store.note([note])
    await machine.store.finish(
        [
            Finish(id=failed.id, fence=failed.fence, outcome=Outcome.FAILED, error="broken"),
            Finish(id=completed.id, fence=completed.fence, outcome=Outcome.COMPLETED, result=b"42"),
        ]
    )
    before = await machine.store.get([job.id for job in jobs])

    after = await (await machine.restart()).get([job.id for job in jobs])

    assert after == before
    assert {record.state for record in after} == {JobState.FAILED, JobState.COMPLETED}


async def test_the_log_of_starts_and_the_declared_limits_survive_a_restart(machine):
    await declare(machine.store, Rate(2, per="1h") & Concurrency(5), tasks=["work"], overrides={})
    await machine.queue.add_many([("work", 1, {"cost": {"api": 2}}), ("other", 2, {"group": "acme"})])
    await start(machine.store, 5)
    before = await machine.store.starts("line", None), await machine.store.limits()

    store = await machine.restart()

    assert (await store.starts("line", None), await store.limits()) == before
    assert len(before[0]) == 2


async def test_a_worker_of_a_new_process_goes_on_with_what_the_old_one_left(opener):
    machine = Machine(opener)
    for number in range(3):
        await machine.queue.add("work", number)
    await start(machine.store, 1, lease=SECOND // 2)
    done = Done()

    async with working(Worker("line", done, store=await machine.restart())):
        await eventually(lambda: len(done.data) == 3)

    assert sorted(done.data) == [0, 1, 2]


# a start of the machine

OFF = [-DAY, -1, 0, 30 * SECOND, 400 * DAY]
"""How far the wall clock seems to have moved while the machine was off; it may be wrong in either direction."""


@pytest.fixture
def reboot(opener, monkeypatch):
    """`await reboot(machine, off)`: the machine starts again with its wall clock moved by so much."""
    boots = count(1)
    real_time_ns, real_time, real_since = time.time_ns, time.time, clocks.since_boot
    moved = 0

    async def again(machine: Machine, off: Micros) -> Any:
        nonlocal moved
        moved += off
        monkeypatch.setattr(time, "time_ns", lambda: real_time_ns() + moved * 1000)
        monkeypatch.setattr(time, "time", lambda: real_time() + moved / 1e6)
        boot = f"boot {next(boots)}"
        began = real_since()
        monkeypatch.setattr(clocks, "boot_id", lambda: boot)
        await machine.store.close()
        monkeypatch.setattr(clocks, "since_boot", lambda: real_since() - began + 17 * SECOND)
        return await machine.restart()

    return again


@pytest.fixture
def real(opener) -> Machine:
    """On the clock that programs have."""
    return Machine(opener)


@pytest.mark.parametrize("off", OFF)
async def test_after_a_reboot_windows_are_as_full_as_before(real, reboot, off):
    await declare(real.store, Rate(3, per="1h", guard=0))
    await real.queue.add_many([("work", number) for number in range(9)])
    assert len(await start(real.store, 9)) == 3

    store = await reboot(real, off)

    assert await start(store, 9) == []
    assert (await store.usage("api", None)).used == 3
    usage = await store.usage("api", None)
    assert HOUR - 20 * SECOND < usage.opens_at - usage.now <= HOUR, "as if it had been off for no time at all"


@pytest.mark.parametrize("off", [-DAY, 30 * SECOND, 400 * DAY])
@pytest.mark.parametrize("kind", [Delay("1h"), EvenlySpaced(3, per="3h"), Rate(9, per="9h") & Delay("1h")], ids=repr)
async def test_after_a_reboot_spacings_are_as_wide_as_before(real, reboot, kind, off):
    await declare(real.store, kind)
    await real.queue.add_many([("work", number) for number in range(3)])
    assert len(await start(real.store)) == 1

    store = await reboot(real, off)

    assert await start(store) == []
    usage = await store.usage("api", None)
    assert HOUR - 20 * SECOND < usage.opens_at - usage.now <= HOUR


@pytest.mark.parametrize("off", OFF)
async def test_after_a_reboot_holds_are_as_long_as_before_for_known_and_for_new_groups(real, reboot, off):
    await declare(real.store, Rate(5, per="1m"), "tenant", by="group")
    await real.queue.add("work", group="known")
    assert len(await start(real.store)) == 1
    await real.store.hold([Hold(limit="tenant", for_=HOUR, reason="429")])

    store = await reboot(real, off)

    left = [(await store.usage("tenant", group)).hold_until - store.clock.now() for group in ("known", "new")]
    assert all(HOUR - 20 * SECOND < each <= HOUR for each in left), left


@pytest.mark.parametrize("off", OFF)
async def test_time_never_goes_back_over_a_reboot(real, reboot, off):
    job = await real.queue.add("work")
    (record,) = await start(real.store)
    await real.store.finish([Finish(id=record.id, fence=record.fence, outcome=Outcome.COMPLETED)])
    finished_at = (await real.store.get([job.id]))[0].finished_at

    store = await reboot(real, off)
    later = (await real.store.insert([NewJob("later", "line", "work")]))[0].job.created_at

    assert later >= finished_at
    assert store.clock.now() >= finished_at


async def test_several_reboots_in_a_row_with_a_mad_wall_clock_never_open_a_window(real, reboot):
    await declare(real.store, Rate(2, per="1h"))
    await real.queue.add_many([("work", number) for number in range(9)])
    assert len(await start(real.store, 9)) == 2

    for off in (DAY, -3 * DAY, 5 * SECOND, -1, HOUR):
        store = await reboot(real, off)
        assert await start(store, 9) == []


async def test_starts_that_are_folded_and_those_that_are_not_are_moved_together(machine, clock, reboot, opener):
    await declare(machine.store, Rate(2, per="1s"))
    await machine.queue.add_many([("work", number) for number in range(90)])
    for _ in range(80):
        assert len(await start(machine.store)) == 1
        clock.at += SECOND
    await machine.store.override(Override(limit="api", kind=Rate(20, per="1h")), None)
    before = await machine.store.usage("api", None)
    assert before.used == 20
    await machine.store.close()

    after = await (await reboot(Machine(opener), 0)).usage("api", None)

    assert after.used == before.used
    assert abs((after.opens_at - after.now) - (before.opens_at - before.now)) < 20 * SECOND


async def test_after_a_reboot_leases_end_and_delayed_jobs_are_due_by_the_wall_clock(real, reboot):
    await real.queue.add("work", "held")
    await start(real.store, lease=MINUTE)
    await real.queue.add("work", "delayed", delay="30m")

    store = await reboot(real, HOUR)

    assert {record.data for record in await start(store, 5)} == {b'"held"', b'"delayed"'}


async def test_after_a_reboot_that_turned_the_wall_clock_back_leases_still_end(real, reboot):
    await real.queue.add("work", "held")
    await start(real.store, lease=SECOND // 5)
    done = Done()

    store = await reboot(real, -DAY)
    async with working(Worker("line", done, store=store)):
        await eventually(lambda: done.data, within=5)


async def test_all_processes_after_a_reboot_share_one_clock(real, reboot, opener):
    await real.queue.add("work")
    store = await reboot(real, -HOUR)
    other = opener()
    await other.open()

    assert abs(store.clock.now() - other.clock.now()) < 2 * SECOND
    assert store.clock.offset == other.clock.offset


# steps of the wall clock


@pytest.mark.parametrize("step", [-DAY, -HOUR, HOUR, 400 * DAY])
async def test_steps_of_the_wall_clock_change_nothing_while_running(real, opener, monkeypatch, step):
    await declare(real.store, Rate(2, per="1h"))
    await real.queue.add_many([("work", number) for number in range(9)])
    (first,) = await start(real.store)
    real_time_ns, real_time = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: real_time_ns() + step * 1000)
    monkeypatch.setattr(time, "time", lambda: real_time() + step / 1e6)

    (second,) = await start(real.store)
    newcomer = opener()
    assert await start(newcomer) == []
    assert await start(real.store) == []
    delayed = await Queue("other", store=newcomer).add("work", delay="1h")
    restarted = await real.restart()
    assert await start(restarted) == []

    assert 0 <= second.started_at - first.started_at < 20 * SECOND
    assert 0 <= await ask_again_at(newcomer) - first.started_at - HOUR < SECOND
    assert abs((delayed.due_at - to_datetime(first.started_at)).total_seconds() - 3600) < 20


async def test_a_worker_sleeps_as_long_as_it_should_when_the_wall_clock_is_stepped(real, monkeypatch):
    await declare(real.store, Delay("200ms"))
    await real.queue.add_many([("work", number) for number in range(3)])
    done = Done()
    real_time_ns = time.time_ns

    async with working(Worker("line", done, store=real.store, concurrency=3)):
        await eventually(lambda: done.data)
        monkeypatch.setattr(time, "time_ns", lambda: real_time_ns() - HOUR * 1000)
        await eventually(lambda: len(done.data) == 3, within=8)

    starts = [each.at for each in await real.store.starts("line", None)]
    assert all(later - earlier >= 200_000 for earlier, later in pairwise(starts))


async def test_an_app_says_the_same_about_its_limits_after_a_restart(opener):
    machine = Machine(opener)
    app = App(machine.store)
    app.limit("api", Rate(2, per="1h"))
    await app.queue("line").add_many([("work", 1), ("work", 2)])
    await start(machine.store)
    await start(machine.store)
    before = await app.limit_state("api")

    assert await App(await machine.restart()).limit_state("api") == before
