"""Instants at the end of time, which people write for "until further notice": they work, and alike on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from paceline import App, ConfigError, Rate

END = datetime.max.replace(tzinfo=UTC)
WEST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
"""Half a day after the last instant that a datetime in UTC can show."""
LONG = "365000 days"
ends = pytest.mark.parametrize("end", [END, WEST], ids=["utc", "west"])


@pytest.fixture
def app(store) -> App:
    app = App(store)
    app.limit("all", Rate(5, per="1h"))
    return app


@ends
async def test_a_hold_for_ever(app, end):
    job = await app.queue("line").add("work")
    await app.hold("all", until=end)
    state = await app.limit_state("all")
    assert (state.held_until, state.next_start_at) == (END, END)
    assert (await job.explain()).earliest_start == END
    await app.release("all")
    assert (await app.limit_state("all")).held_until is None


async def test_a_hold_of_a_thousand_years(app, clock):
    await app.hold("all", for_=LONG)
    held = (await app.limit_state("all")).held_until
    assert held is not None and held.year > 3000


@ends
async def test_a_job_that_is_never_due(app, end):
    job = await app.queue("line").add("work", at=end)
    await job.refresh()
    assert (job.due_at, job.state) == (END, "delayed")
    assert (await job.explain()).earliest_start == END


@pytest.mark.parametrize("option", ["delay", "keep", "timeout"])
async def test_options_of_a_job_of_a_thousand_years(app, option):
    job = await app.queue("line").add("work", **{option: LONG})
    await job.refresh()
    assert job.due_at.year > 3000 or option != "delay"


@pytest.mark.parametrize("option", ["delay", "keep", "timeout"])
async def test_durations_that_no_clock_can_count_are_refused(app, option):
    with pytest.raises(ConfigError, match=f"{option}=.*at most 1000 years"):
        await app.queue("line").add("work", **{option: timedelta.max})


@ends
async def test_an_override_for_ever(app, store, end):
    await app.override("all", Rate(1, per="1s"), expires=end)
    assert (await app.limit_state("all")).kind == Rate(1, per="1s")
    (override,) = await store.overrides()
    assert override.expires_at is not None
    await app.override("all", None)
    assert (await app.limit_state("all")).kind == Rate(5, per="1h")
