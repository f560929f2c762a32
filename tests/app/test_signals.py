"""What an outside service or an operator says: holds, 429s, backoff, and the verdicts of a handler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from paceline import App, Backoff, Concurrency, ConfigError, JobFailed, Rate, RateLimited, Retry, current_job
from paceline.testing import VirtualTime

from .conftest import Timeline

LIMITS = ("service", "task", "other", "all", "tenant")


def declare(app: App) -> None:
    app.limit("service", Rate(100, per="1m"), tasks=["step", "sibling"])
    app.limit("task", Concurrency(50), tasks=["step"])
    app.limit("other", Rate(100, per="1m"), tasks=["stranger"])
    app.limit("all", Rate(1000, per="1m"))
    app.limit("tenant", Rate(100, per="1m"), by="group")


async def held(app: App, timeline: Timeline, group: str = "a") -> dict[str, float]:
    """Which limits are held, and until which second."""
    found = {name: await app.limit_state(name, group if name == "tenant" else None) for name in LIMITS}
    return {name: timeline.at(state.held_until) for name, state in found.items() if state.held_until}  # type: ignore[misc]


class Refusals:
    """A task that raises the given verdicts one after the other, then succeeds."""

    def __init__(self, app: App, *verdicts: BaseException, name: str = "step", **options: Any) -> None:
        self.verdicts = list(verdicts)
        self.attempts: list[int] = []
        self.task = app.task(name=name, **options)(self.run)

    async def run(self) -> None:
        self.attempts.append(current_job().attempts_made)
        if self.verdicts:
            raise self.verdicts.pop(0)


async def noop() -> None: ...


# which limits a refusal holds


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, {"service": 30, "task": 30}),
        ("service", {"service": 30}),
        ("other", {"other": 30}),
        ("all", {"all": 30}),
        ("tenant", {"tenant": 30}),
    ],
    ids=["no name", "one of its own", "one it does not meet", "catch-all", "per group"],
)
async def test_rate_limited_holds_the_limit_named_or_else_those_that_list_the_task(
    app: App, paceline_time: VirtualTime, timeline: Timeline, name: str | None, expected: dict[str, float]
) -> None:
    declare(app)
    step = Refusals(app, RateLimited(30, limit=name))
    await step.task.using(group="a").enqueue()
    async with app.worker():
        await paceline_time.advance(0)
        assert await held(app, timeline) == expected
        assert "tenant" not in await held(app, timeline, group="b")


async def test_a_refusal_no_limit_lists_holds_this_task_in_this_queue_and_nobody_else(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("all", Rate(1000, per="1m"))
    app.limit("tenant", Rate(100, per="1m"), by="group")
    step = Refusals(app, RateLimited(30))
    other = app.task(name="other")(noop)
    await step.task.using(group="a").enqueue()
    async with app.worker(queues=["default", "second"]):
        await paceline_time.advance("1s")
        await step.task.using(group="b").enqueue()
        await other.using(group="a").enqueue()
        await step.task.using(queue="second").enqueue()
        await paceline_time.advance("1s")
        assert timeline.starts() == [0, 1, 1]
        assert {start.task for start in await app.queue().starts(paceline_time.now() - timedelta(seconds=1))} == {
            "other"
        }
        await paceline_time.advance("30s")
    assert timeline.starts() == [0, 1, 1, 30, 30]


async def test_a_refusal_under_one_limit_stops_everybody_under_it_and_nobody_else(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    declare(app)
    step = Refusals(app, RateLimited("30s"))
    await step.task.enqueue()
    async with app.worker(workers=2):
        await paceline_time.advance("1s")
        await app.task(name="sibling")(noop).enqueue()
        await app.task(name="stranger")(noop).enqueue()
        await paceline_time.advance("1m")
    assert timeline.starts("step") == [0, 30]
    assert timeline.starts("sibling") == [30]
    assert timeline.starts("stranger") == [1]


async def test_a_job_without_a_group_that_names_a_per_group_limit_does_not_spin(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    declare(app)
    step = Refusals(app, *[RateLimited(30, limit="tenant") for _ in range(5)])
    await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("29s")
        assert timeline.starts() == [0]
        await paceline_time.advance("10m")


async def test_a_refusal_that_names_no_declared_limit_fails_the_attempt_and_says_so(
    app: App, paceline_time: VirtualTime
) -> None:
    declare(app)
    job = await Refusals(app, RateLimited(30, limit="typo")).task.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
    assert (await job.refresh()).state == "failed"
    assert "'typo'" in (job.error or "") and "service" in (job.error or "")


# what becomes of the job


async def test_a_429_uses_no_attempt_and_its_start_stays_charged(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(2, per="1h"), tasks=["step"])
    step = Refusals(app, RateLimited(10))
    job = await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
        assert ((await job.refresh()).state, job.attempts_made) == ("waiting", 0)
        assert (await app.limit_state("service")).used == 1
        await paceline_time.advance("20s")
    assert ((await job.refresh()).state, job.attempts_made) == ("completed", 1)
    assert (step.attempts, timeline.starts()) == ([1, 1], [0, 10])
    assert (await app.limit_state("service")).used == 2


async def test_a_refused_job_goes_back_to_its_place(app: App, paceline_time: VirtualTime) -> None:
    app.limit("service", Concurrency(1), tasks=["step"])
    step = Refusals(app, RateLimited(10))
    jobs = await step.task.enqueue_many([()] * 3)
    async with app.worker():
        await paceline_time.advance("20s")
    assert [start.job_id for start in paceline_time.starts()] == [jobs[0].id, *(job.id for job in jobs)]


async def test_how_often_a_job_may_come_back_is_capped(app: App, paceline_time: VirtualTime) -> None:
    step = Refusals(app, *[RateLimited(1) for _ in range(10)])
    job = await step.task.using(attempts=5).enqueue()
    async with app.worker(max_returns=3):
        await paceline_time.advance("1m")
    assert len(paceline_time.starts()) == 4
    with pytest.raises(JobFailed, match=r"RateLimited.*4"):
        await job.result()


async def test_the_cap_is_a_hundred_unless_said(app: App, paceline_time: VirtualTime) -> None:
    step = Refusals(app, *[RateLimited(1) for _ in range(200)])
    await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("5m")
    assert len(paceline_time.starts()) == 101


# backoff


async def test_the_hold_of_the_kth_refusal_is_d_plus_a_random_part_of_d_d4(
    app: App, paceline_time: VirtualTime, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    app.limit("service", Rate(100, per="1m"), tasks=["step"], backoff=Backoff("1s", multiplier=3, maximum="10s"))
    step = Refusals(app, *[RateLimited() for _ in range(5)])
    await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("2m")
    starts = timeline.starts()
    holds = [later - earlier for earlier, later in pairwise(starts)]
    assert holds == [1.5, 4.5, 13.5, 15, 15]


async def test_the_random_part_is_between_nothing_and_d(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(100, per="1m"), tasks=["step"])
    step = Refusals(app, *[RateLimited() for _ in range(12)])
    await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("3h")
    starts = timeline.starts()
    holds = [later - earlier for earlier, later in pairwise(starts)]
    bases = [min(2**k, 600) for k in range(12)]
    assert len(holds) == 12
    assert all(base <= hold < 2 * base for base, hold in zip(bases, holds, strict=True))
    assert len({hold / base for base, hold in zip(bases, holds, strict=True)}) > 6


async def test_a_success_of_a_job_started_after_the_hold_resets_the_backoff(
    app: App, paceline_time: VirtualTime, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    app.limit("service", Rate(100, per="1m"), tasks=["step"])
    step = Refusals(app, RateLimited(), RateLimited())
    await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
        assert timeline.starts() == [0, 1, 3]
        step.verdicts.append(RateLimited())
        await step.task.enqueue()
        await paceline_time.advance("1m")
    assert timeline.starts() == [0, 1, 3, 60, 61]


async def test_a_success_of_a_job_that_ran_before_the_hold_resets_nothing(
    app: App, paceline_time: VirtualTime, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    app.limit("service", Rate(100, per="1m"), tasks=["step", "slow"])

    @app.task()
    async def slow() -> None:
        await paceline_time.sleep("500ms")

    step = Refusals(app, RateLimited(), RateLimited())
    await slow.enqueue()
    await step.task.enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert timeline.starts("step") == [0, 1, 3]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"initial": 0}, "initial=0"),
        ({"initial": -1}, "initial=-1"),
        ({"multiplier": 1}, "multiplier=1"),
        ({"multiplier": 0.5}, "multiplier=0.5"),
        ({"multiplier": float("nan")}, "multiplier=nan"),
        ({"multiplier": float("inf")}, "multiplier=inf"),
        ({"multiplier": True}, "multiplier=True"),
        ({"maximum": "1s"}, "maximum='1s'"),
        ({"initial": "5s", "maximum": "4s"}, "maximum='4s'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_backoff_is_an_error_that_shows_the_value_3_9(options: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Backoff(**options)
    assert shown in str(caught.value)


def test_the_defaults_of_backoff_are_one_second_times_two_up_to_ten_minutes() -> None:
    assert Backoff() == Backoff(initial="1s", multiplier=2, maximum="10m")
    assert repr(Backoff()) == "Backoff(initial='1s', multiplier=2, maximum='10m')"


# holds by hand


async def test_a_hold_stops_everybody_until_its_end_and_not_a_moment_longer_d13(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(100, per="1m"), tasks=["step"])
    task = app.task(name="step")(noop)
    await app.hold("service", for_="30s", reason="they asked for it")
    await task.enqueue_many([()] * 2)
    async with app.worker(workers=2):
        await paceline_time.advance("1m")
    assert timeline.starts() == [30, 30]


async def test_hold_until_an_instant(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    app.limit("service", Rate(100, per="1m"))
    await app.hold("service", until=paceline_time.now() + timedelta(seconds=7))
    await app.task(name="step")(noop).enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert timeline.starts() == [7]


async def test_a_hold_only_ever_grows(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    app.limit("service", Rate(100, per="1m"))
    await app.hold("service", for_="30s")
    await app.hold("service", for_="10s")
    await app.hold("service", until=paceline_time.now() - timedelta(hours=1))
    assert timeline.at((await app.limit_state("service")).held_until) == 30
    await app.hold("service", for_="40s")
    assert timeline.at((await app.limit_state("service")).held_until) == 40


async def test_a_later_refusal_with_a_shorter_time_does_not_shorten_the_hold(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(100, per="1m"), tasks=["step"])
    step = Refusals(app, RateLimited(60), RateLimited(5))
    await step.task.enqueue_many([()] * 2)
    async with app.worker():
        await paceline_time.advance(0)
        assert timeline.at((await app.limit_state("service")).held_until) == 60
        await paceline_time.advance("2m")
    assert timeline.starts() == [0, 0, 60, 60]


async def test_room_in_the_window_other_numbers_and_lifted_overrides_do_not_wipe_a_hold(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(1, per="1s"))
    await app.hold("service", for_="30s")
    limiter = app.limiter("service")
    assert not await limiter.can_proceed()
    assert await limiter.try_acquire() is None
    await app.override("service", Rate(500, per="1s"))
    await app.override("service", None)
    other = App(app.store)
    other.limit("service", Rate(900, per="1s"))
    await other.queue().counts()
    await app.task(name="step")(noop).enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert timeline.starts() == [30]


async def test_release_lifts_a_hold_at_once_and_forgets_no_start(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(2, per="1h"))
    task = app.task(name="step")(noop)
    await task.enqueue_many([()] * 3)
    async with app.worker(concurrency=1):
        await paceline_time.advance("1s")
        await app.hold("service", for_="2h")
        await app.release("service")
        assert (await app.limit_state("service")).held_until is None
        assert (await app.limit_state("service")).used == 2
        await paceline_time.advance("1h")
        await app.hold("service", for_="1h")
        await task.enqueue()
        await paceline_time.advance("10s")
        await app.release("service")
        await paceline_time.advance("1ms")
    assert timeline.starts() == [0, 0, 3600, 3611]


async def test_a_hold_of_one_group_leaves_the_others_alone(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("tenant", Rate(100, per="1m"), by="group")
    task = app.task(name="step")(noop)
    await app.hold("tenant", for_="30s", group="a")
    for group in ("a", "b", None):
        await task.using(group=group).enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
        assert [start.group for start in paceline_time.starts()] == ["b", None]
        await app.release("tenant")
        await paceline_time.advance("1ms")
        assert [start.group for start in paceline_time.starts()] == ["b", None, "a"]


async def test_a_hold_of_a_per_group_limit_without_a_group_holds_every_group_also_new_ones(
    app: App, paceline_time: VirtualTime
) -> None:
    app.limit("tenant", Rate(100, per="1m"), by="group")
    task = app.task(name="step")(noop)
    async with app.worker():
        await task.using(group="known").enqueue()
        await paceline_time.advance("1s")
        await app.hold("tenant", for_="30s")
        for group in ("known", "new"):
            await task.using(group=group).enqueue()
        await paceline_time.advance("29s")
        assert [start.group for start in paceline_time.starts()] == ["known"]
        await paceline_time.advance("1s")
    assert sorted(start.group or "" for start in paceline_time.starts()) == ["known", "known", "new"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"for_": "1s", "until": datetime(2031, 1, 1, tzinfo=UTC)},
        {"for_": -1},
        {"for_": "a while"},
        {"until": datetime(2031, 1, 1)},
        {"until": "tomorrow"},
    ],
    ids=repr,
)
async def test_a_hold_without_one_clear_end_is_an_error_and_holds_nothing(app: App, options: dict[str, Any]) -> None:
    app.limit("service", Rate(1, per="1s"))
    with pytest.raises(ConfigError):
        await app.hold("service", **options)
    assert (await app.limit_state("service")).held_until is None


def test_a_wrong_retry_after_is_an_error_that_shows_it() -> None:
    for wrong in (-1, "soon", float("nan"), True):
        with pytest.raises(ConfigError) as caught:
            RateLimited(wrong)
        assert repr(wrong) in str(caught.value)
    with pytest.raises(ConfigError, match="limit=''"):
        RateLimited(limit="")
    with pytest.raises(ConfigError, match="one of them"):
        Retry(after=1, at=datetime(2031, 1, 1, tzinfo=UTC))
    with pytest.raises(ConfigError, match="time zone"):
        Retry(at=datetime(2031, 1, 1))
