"""What a handler raises about its own job: `Retry`, `Fail`, and `RateLimited` read from a response."""

from __future__ import annotations

import time as real
from collections.abc import Callable
from datetime import timedelta
from email.utils import formatdate
from typing import Any

import pytest

from paceline import App, Concurrency, Delay, EvenlySpaced, Fail, JobFailed, Rate, RateLimited, Retry, current_job
from paceline.testing import VirtualTime

from .conftest import Timeline

DATE = {"Date": "Tue, 01 Jan 2030 00:00:00 GMT"}
EPOCH = 1_893_456_000  # the same instant


def verdicts(app: App, *raised: Callable[[], BaseException], **options: Any) -> Any:
    """A task that raises these one after the other, then returns the number of its attempt."""
    left = list(raised)

    @app.task(name="step", **options)
    async def step() -> int:
        if left:
            raise left.pop(0)()
        return current_job().attempts_made

    return step


# Retry


async def test_retry_after_a_while_uses_an_attempt(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    task = verdicts(app, lambda: Retry(after="10s"), lambda: Retry("5s"), attempts=3)
    job = await task.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
        assert ((await job.refresh()).state, job.attempts_made, timeline.at(job.due_at)) == ("delayed", 1, 10)
        await paceline_time.advance("1m")
    assert timeline.starts() == [0, 10, 15]
    assert await job.result() == 3


async def test_retry_at_an_instant_d12(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    task = verdicts(app, lambda: Retry(at=paceline_time.now() + timedelta(seconds=7)), attempts=2)
    await task.enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert timeline.starts() == [0, 7]


async def test_retry_at_an_instant_that_has_passed_is_due_now(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    job = await verdicts(app, lambda: Retry(at=paceline_time.now() - timedelta(days=1)), attempts=2).enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
    assert timeline.starts() == [0, 0]
    assert timeline.at((await job.refresh()).due_at) == 0


@pytest.mark.parametrize(
    ("kinds", "due"),
    [
        ([], 0),
        ([Rate(1, per="40s")], 40),
        ([Rate(2, per="40s")], 0),
        ([Delay("20s")], 20),
        ([EvenlySpaced(2, per="1m")], 30),
        ([Rate(1, per="40s"), Delay("20s"), EvenlySpaced(1, per="50s")], 50),
        ([Concurrency(1)], 0),
        ([Concurrency(1), Rate(1, per="40s")], 40),
        ([Rate(1, per="40s") & Concurrency(1)], 40),
        ([Rate(1, per="40s") & Concurrency(5)], 40),
    ],
    ids=repr,
)
async def test_retry_without_a_time_is_due_at_the_latest_next_start_of_its_limits_d12(
    app: App, paceline_time: VirtualTime, timeline: Timeline, kinds: list[Any], due: float
) -> None:
    for number, kind in enumerate(kinds):
        app.limit(f"limit-{number}", kind, tasks=["step"])
    app.limit("not-mine", Rate(1, per="2h"), tasks=["other"])
    job = await verdicts(app, lambda: Retry(), attempts=2).enqueue()
    async with app.worker():
        await paceline_time.advance("2m")
    assert timeline.starts() == [0, due]
    assert timeline.at((await job.refresh()).due_at) == due


async def test_retry_without_a_time_waits_for_a_hold_too(
    app: App, paceline_time: VirtualTime, timeline: Timeline
) -> None:
    app.limit("service", Rate(10, per="1s"), tasks=["step"])

    @app.task(attempts=2)
    async def step() -> None:
        if current_job().attempts_made == 1:
            await app.hold("service", for_="25s")
            raise Retry()

    job = await step.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
        assert ((await job.refresh()).state, timeline.at(job.due_at)) == ("delayed", 25)
        await paceline_time.advance("1m")
    assert timeline.starts() == [0, 25]


async def test_retry_without_an_attempt_left_fails_with_its_reason(app: App, paceline_time: VirtualTime) -> None:
    job = await verdicts(app, *[lambda: Retry("1s", reason="not yet")] * 5, attempts=3).enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert len(paceline_time.starts()) == 3
    with pytest.raises(JobFailed, match="not yet"):
        await job.result()
    assert job.attempts_made == 3


# Fail


async def test_fail_ends_the_job_for_good_whatever_attempts_are_left(app: App, paceline_time: VirtualTime) -> None:
    job = await verdicts(app, lambda: Fail("no such account"), attempts=9, retry_delay="1s").enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert (await job.refresh()).state == "failed"
    assert (job.error, job.attempts_made) == ("no such account", 1)
    with pytest.raises(JobFailed, match="no such account") as caught:
        await job.result()
    assert caught.value.error == "no such account"


async def test_an_error_says_its_type_and_text(app: App, paceline_time: VirtualTime) -> None:
    job = await verdicts(app, lambda: ValueError("boom")).enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
    assert (await job.refresh()).error == "ValueError: boom"


# RateLimited from a response


async def held_for(app: App, time: VirtualTime, verdict: Callable[[], BaseException]) -> float | None:
    """How long the limit is held after a handler raised this."""
    app.limit("service", Rate(1000, per="1s"), tasks=["step"])
    await verdicts(app, verdict).enqueue()
    async with app.worker():
        await time.advance(0)
        until = (await app.limit_state("service")).held_until
    return None if until is None else (until - time.now()).total_seconds()


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry-After": "30"}, 30),
        (503, {"retry-after": "12"}, 12),
        (429, {"RETRY-AFTER": "1.5"}, 1.5),
        (429, {**DATE, "Retry-After": "Tue, 01 Jan 2030 00:01:30 GMT"}, 90),
        (429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"}, 90),
        (429, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6ms"}, 0.006),
        (429, {"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        (
            429,
            {
                **DATE,
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2030-01-01T00:00:45Z",
            },
            45,
        ),
        (429, {**DATE, "retry-after": "9", "anthropic-ratelimit-requests-reset": "2030-01-01T00:00:45Z"}, 9),
        (403, {**DATE, "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(EPOCH + 600)}, 600),
        (429, {"RateLimit": '"default";r=0;t=20', "RateLimit-Policy": '"default";q=100;w=60'}, 20),
        (429, [("Retry-After", "30")], 30),
        (429, [(b"retry-after", b"30")], 30),
        (429, [("Retry-After", "60"), ("Retry-After", "5")], 60),
        (429, [("Retry-After", "5"), ("Retry-After", "60")], 60),
    ],
    ids=[
        "seconds",
        "503, lower case",
        "upper case, fraction",
        "date",
        "openai requests",
        "openai tokens",
        "openai milliseconds",
        "anthropic",
        "anthropic with retry-after",
        "github",
        "ietf",
        "pairs",
        "pairs of bytes",
        "said twice, the longer first",
        "said twice, the longer last",
    ],
)
async def test_from_response_holds_for_as_long_as_the_service_says(
    app: App, paceline_time: VirtualTime, status: int, headers: Any, seconds: float
) -> None:
    assert await held_for(app, paceline_time, lambda: RateLimited.from_response(status, headers)) == seconds


async def test_from_response_reads_a_date_by_our_clock_when_the_service_sends_none(
    app: App, paceline_time: VirtualTime
) -> None:
    headers = {"Retry-After": formatdate(real.time() + 90, usegmt=True)}
    seconds = await held_for(app, paceline_time, lambda: RateLimited.from_response(429, headers))
    assert seconds is not None and 85 < seconds <= 90


@pytest.mark.parametrize(
    "headers",
    [{}, {"Retry-After": "soon"}, {"Retry-After": "-5"}, {"X-RateLimit-Reset": "nan"}, {"Retry-After": ""}],
    ids=repr,
)
async def test_from_response_without_a_time_that_makes_sense_backs_off(
    app: App, paceline_time: VirtualTime, headers: dict[str, str]
) -> None:
    seconds = await held_for(app, paceline_time, lambda: RateLimited.from_response(429, headers))
    assert seconds is not None and 1 <= seconds < 2


async def test_nonsense_in_a_header_is_ignored_with_a_warning(
    app: App, paceline_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    await held_for(app, paceline_time, lambda: RateLimited.from_response(429, {"Retry-After": "soon"}))
    assert any("retry-after" in record.getMessage() and "soon" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("reset", ["500ns", "0s", "1ns"])
async def test_a_time_too_short_to_count_is_no_error(app: App, paceline_time: VirtualTime, reset: str) -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset}
    job = await verdicts(app, lambda: RateLimited.from_response(429, headers)).enqueue()
    async with app.worker():
        await paceline_time.advance("1m")
    assert (await job.refresh()).state == "completed"


async def test_from_response_names_a_limit(app: App, paceline_time: VirtualTime, timeline: Timeline) -> None:
    app.limit("everything", Rate(1000, per="1s"))
    task = verdicts(app, lambda: RateLimited.from_response(429, {"Retry-After": "30"}, limit="everything"))
    await task.enqueue()
    async with app.worker():
        await paceline_time.advance("1s")
        assert timeline.at((await app.limit_state("everything")).held_until) == 30
