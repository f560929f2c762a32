"""`GroupLimits` on a worker: limits of each group, declared in the store for everybody."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from paceline import AllOf, App, Concurrency, ConfigError, GroupLimits, Job, Queue, Rate, Worker
from paceline.testing import VirtualTime

from .conftest import Timeline


async def noop(job: Job[Any]) -> None: ...


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        (GroupLimits(concurrency=2), Concurrency(2)),
        (GroupLimits(limiter=Rate(30, per="1m")), Rate(30, per="1m")),
        (GroupLimits(2, Rate(30, per="1m")), AllOf(Concurrency(2), Rate(30, per="1m"))),
    ],
    ids=["concurrency", "limiter", "both"],
)
async def test_group_limits_are_the_limit_group_queue_in_the_store(
    app: App, paceline_time: VirtualTime, limits: GroupLimits, kind: Any
) -> None:
    async with Worker(["mail", "letters"], noop, store=app.store, group=limits):
        await paceline_time.advance("1s")
    for queue in ("mail", "letters"):
        assert (await app.limit_state(f"group:{queue}", "tenant-1")).kind == kind


async def test_they_bind_every_worker_also_those_that_do_not_know_them_c2_c3(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    queue = Queue("mail", store=app.store)
    for group in ("a", "b", None):
        await queue.add_many([("t", n, {"group": group}) for n in range(6)])
    limits = GroupLimits(limiter=Rate(2, per="1m"))
    first = Worker("mail", noop, store=app.store, concurrency=50, group=limits)
    second = Worker("mail", noop, store=app.store, concurrency=50)
    async with first, second:
        await paceline_time.advance("1s")
        started = [start.group for start in paceline_time.starts()]
        assert {group: started.count(group) for group in ("a", "b", None)} == {"a": 2, "b": 2, None: 6}
    async with second:
        await paceline_time.advance("3m")
    starts = [timeline.at(start.at) for start in paceline_time.starts() if start.group == "a"]
    assert starts == [0, 0, 60, 60, 120, 120]


async def test_other_numbers_of_another_worker_win_and_both_are_logged(
    app: App, paceline_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (2, 3):
        async with Worker("mail", noop, store=app.store, group=GroupLimits(concurrency=number)):
            await paceline_time.advance("1s")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "'group:mail'" in warnings[0] and "Concurrency(2)" in warnings[0] and "Concurrency(3)" in warnings[0]
    assert (await app.limit_state("group:mail", "a")).kind == Concurrency(3)


def test_other_numbers_in_one_app_are_an_error(app: App) -> None:
    app.worker(group=GroupLimits(concurrency=2))
    with pytest.raises(ConfigError, match="'group:default'"):
        app.worker(group=GroupLimits(concurrency=3))


async def test_all_bind_together_c8(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    queue = Queue("mail", store=app.store, limits=[Rate(6, per="1m")])
    for group in ("a", "b", "c"):
        await queue.add_many([("t", n, {"group": group}) for n in range(5)])
    worker = Worker(
        "mail",
        noop,
        store=app.store,
        concurrency=50,
        limiter=Rate(4, per="10s"),
        group=GroupLimits(limiter=Rate(3, per="1m")),
    )
    async with worker:
        await paceline_time.advance("3m")
    assert timeline.starts() == [0] * 4 + [10] * 2 + [60] * 4 + [70] * 2 + [120] * 3


async def test_a_key_belongs_to_the_limit_and_counts_a_group_over_queues(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("tenant", Rate(3, per="1m"), queues=["mail", "letters"], by="group")
    for name in ("mail", "letters", "free"):
        await app.queue(name).add_many([("t", n, {"group": "a"}) for n in range(3)])
    async with Worker(["mail", "letters", "free"], noop, store=app.store, concurrency=50):
        await paceline_time.advance("1s")
    counted = [len(await app.queue(name).starts()) for name in ("mail", "letters", "free")]
    assert (counted[0] + counted[1], counted[2]) == (3, 3)
