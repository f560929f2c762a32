"""Looking at jobs and limits: what is shown is what decides, at the time of the store."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.errors import ConfigError, JobNotFound
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Rate, Unlimited
from paceline.stores.interface import Filter, Outcome, Override, StartRecord

from .builders import (
    HOUR,
    MINUTE,
    SECOND,
    a_job,
    a_job_in,
    a_note,
    add,
    add_many,
    claim,
    complete,
    declare,
    finish,
    read,
    start,
    state_of,
    usage,
)

SEVEN = {"waiting", "delayed", "active", "completed", "failed", "cancelled", "waiting-children"}


async def found(store, **changes) -> list[str]:
    return [job.id for job in await store.find(Filter(**{"queue": "line"} | changes))]


# one job


async def test_jobs_are_given_in_the_order_asked(store):
    await add(store, "a", "b", "c", queue="one")
    await add(store, "d", queue="two")

    assert [job.id for job in await store.get(["d", "b", "a"])] == ["d", "b", "a"]


async def test_jobs_that_do_not_exist_are_left_out(store):
    await add(store, "a")

    assert [job.id for job in await store.get(["nobody", "a"])] == ["a"]
    assert await store.get([]) == []


async def test_notes_are_written_to_the_job(store):
    job = await a_job_in(store, JobState.ACTIVE)

    lost = await store.note([a_note(job, progress=50, message="half way"), a_note(job, log="first")])

    record = await read(store, "a")
    assert (lost, record.progress, record.message, record.logs) == ([], 50, "half way", ("first",))


async def test_log_lines_are_kept_in_their_order(store):
    job = await a_job_in(store, JobState.ACTIVE)

    await store.note([a_note(job, log="one"), a_note(job, log="two")])
    await store.note([a_note(job, log="three")])

    assert (await read(store, "a")).logs == ("one", "two", "three")


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.COMPLETED])
async def test_a_job_that_does_not_run_takes_no_notes(store, state):
    before = await a_job_in(store, state)

    assert await store.note([a_note(before, progress=50, log="line")]) == ["a"]

    assert await read(store, "a") == before


# pages


async def test_jobs_are_listed_in_the_order_they_were_added(store):
    await add(store, "a", priority=9)
    await add(store, "b", delay="1h")
    await add(store, "c", lifo=True)
    await add(store, "d", priority=-9, group="acme")

    assert await found(store) == ["a", "b", "c", "d"]


async def test_the_order_of_a_list_does_not_change_with_the_life_of_the_jobs(store):
    await add(store, "a", "b", "c")
    jobs = await start(store, 2)
    await finish(store, jobs[0], Outcome.FAILED)
    await finish(store, jobs[1], Outcome.RELEASED)
    await store.move(["a"], Move.RETRY)

    assert await found(store) == ["a", "b", "c"]


async def test_a_list_comes_in_pages(store):
    ids = await add_many(store, 5)

    first = await found(store, limit=3)
    second = await found(store, limit=3, after=first[-1])
    third = await found(store, limit=3, after=second[-1])

    assert (first, second, third) == (ids[:3], ids[3:], [])


async def test_a_list_may_begin_with_the_newest(store):
    ids = await add_many(store, 5)
    (job,) = await start(store)
    await finish(store, job, Outcome.FAILED, error="broken")

    first = await found(store, limit=3, newest_first=True)
    second = await found(store, limit=3, newest_first=True, after=first[-1])

    assert (first, second) == (ids[:1:-1], ids[1::-1])
    assert await found(store, newest_first=True, after=ids[0]) == []
    assert await found(store, newest_first=True, state=JobState.WAITING) == ids[:0:-1]
    assert await found(store, newest_first=True, state=JobState.FAILED) == ids[:1]


async def test_a_long_list_may_begin_with_the_newest_too(store):
    ids = await add_many(store, 450)
    await add(store, "other", task="other")

    assert await found(store, limit=1000, newest_first=True, task="work") == ids[::-1]
    assert await found(store, limit=2, newest_first=True, after=ids[210]) == ids[209:207:-1]


async def test_a_page_has_a_hundred_jobs_unless_said(store):
    ids = await add_many(store, 150)

    assert await found(store) == ids[:100]


async def test_pages_of_a_filtered_list_hold_only_what_matches(store):
    await store.insert([a_job(f"{number}", task="even" if number % 2 == 0 else "odd") for number in range(10)])

    first = await found(store, task="even", limit=2)
    second = await found(store, task="even", limit=2, after=first[-1])

    assert (first, second) == (["0", "2"], ["4", "6"])


async def test_there_is_no_page_after_a_job_that_does_not_exist(store):
    await add_many(store, 3)

    with pytest.raises(JobNotFound):
        await found(store, after="nobody")


async def test_a_list_is_of_one_queue(store):
    await add(store, "a", queue="line")
    await add(store, "b", queue="lines")

    assert (await found(store), await found(store, queue="nobody")) == (["a"], [])


async def test_a_list_may_be_of_one_task_or_group(store):
    await add(store, "a", task="mail", group="acme")
    await add(store, "b", task="bill", group="acme")
    await add(store, "c", task="mail")

    assert await found(store, task="mail") == ["a", "c"]
    assert await found(store, group="acme") == ["a", "b"]
    assert await found(store, task="mail", group="acme") == ["a"]


async def test_a_list_may_be_of_one_state(store):
    for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.ACTIVE, JobState.WAITING):
        await a_job_in(store, state, state)
    await add(store, "delayed", delay="1h")

    for state in ("completed", "failed", "cancelled", "active", "waiting", "delayed"):
        assert await found(store, state=JobState(state)) == [state]


async def test_a_delayed_job_that_is_due_is_listed_and_counted_as_waiting(store, clock):
    await add(store, "a", delay="1s")
    clock.advance("1s")

    assert (await found(store, state=JobState.WAITING), await found(store, state=JobState.DELAYED)) == (["a"], [])
    counts = await store.counts("line")
    assert (counts["waiting"], counts["delayed"]) == (1, 0)
    assert await state_of(store, "a") == JobState.WAITING


# counts


async def test_a_queue_that_nobody_used_counts_seven_zeros(store):
    assert await store.counts("nobody") == dict.fromkeys(SEVEN, 0)


async def test_every_job_is_counted_in_its_state(store):
    for number, state in enumerate(("completed", "failed", "cancelled", "active", "waiting", "delayed"), 1):
        for copy in range(number):
            if state == "active":
                await a_job_in(store, JobState.ACTIVE, f"{state} {copy}")
            elif state in ("waiting", "delayed"):
                await add(store, f"{state} {copy}", delay="1h" if state == "delayed" else 0)
            else:
                await a_job_in(store, JobState(state), f"{state} {copy}")

    assert await store.counts("line") == {
        "completed": 1,
        "failed": 2,
        "cancelled": 3,
        "active": 4,
        "waiting": 5,
        "delayed": 6,
        "waiting-children": 0,
    }


async def test_counts_follow_a_job_through_its_life(store):
    async def where() -> list[str]:
        return [state for state, number in (await store.counts("line")).items() for _ in range(number)]

    states = []
    await add(store, "a", attempts=3)
    states += await where()
    (job,) = await start(store)
    states += await where()
    await finish(store, job, Outcome.RETRY, after="1h")
    states += await where()
    await store.move(["a"], Move.PROMOTE)
    states += await where()
    (job,) = await start(store)
    await finish(store, job, Outcome.FAILED)
    states += await where()
    await store.move(["a"], Move.RETRY)
    states += await where()
    await store.move(["a"], Move.CANCEL)
    states += await where()

    assert states == ["waiting", "active", "delayed", "waiting", "failed", "waiting", "cancelled"]


# starts


async def test_the_log_has_every_start_as_the_store_stamped_it(store, clock):
    first = clock.now()
    await add(store, "a", task="mail", group="acme", cost=3, attempts=2)
    await add(store, "b", cost={"tokens": 7})
    jobs = await start(store, 2)
    clock.advance("1s")
    await finish(store, jobs[0], Outcome.RETRY)
    await start(store)

    assert await store.starts("line", None) == [
        StartRecord("a", first, "mail", "acme", 3),
        StartRecord("b", first, "work", None, {"tokens": 7}),
        StartRecord("a", first + SECOND, "mail", "acme", 3),
    ]


async def test_the_log_may_be_read_from_an_instant_on(store, clock):
    await add(store, "a", "b", "c")
    for _ in range(3):
        await start(store)
        clock.advance("1s")

    assert [each.job_id for each in await store.starts("line", clock.now() - 2 * SECOND)] == ["b", "c"]


async def test_the_log_is_of_one_queue(store):
    await add(store, "a", queue="one")
    await add(store, "b", queue="two")
    await claim(store, 2, queues=["one", "two"])

    assert [each.job_id for each in await store.starts("two", None)] == ["b"]
    assert await store.starts("nobody", None) == []


async def test_the_log_outlives_its_jobs(store):
    await add(store, "a", keep=0)
    await complete(store, await start(store))

    assert [each.job_id for each in await store.starts("line", None)] == ["a"]


# limits


async def test_usage_shows_how_full_a_window_is_and_when_it_opens(store, clock):
    await declare(store, "mail", Rate(2, per="1m"))
    await add_many(store, 5)
    await start(store)
    half = await usage(store, "mail")
    await start(store)
    full = await usage(store, "mail")

    assert (half.limit, half.group, half.kind, half.used, half.allowed) == ("mail", None, Rate(2, per="1m"), 1, 2)
    assert (half.opens_at <= clock.now(), half.waiting) == (True, 4)
    assert (full.used, full.allowed, full.opens_at, full.waiting) == (2, 2, clock.now() + MINUTE, 3)


async def test_usage_forgets_starts_exactly_when_they_leave_the_window(store, clock):
    await declare(store, "mail", Rate(2, per="1m"))
    await add_many(store, 2)
    await start(store, 2)

    clock.to(clock.now() + MINUTE - 1)
    before = (await usage(store, "mail")).used
    clock.to(clock.now() + 1)

    assert (before, (await usage(store, "mail")).used) == (2, 0)


async def test_usage_of_a_concurrency_shows_what_runs(store):
    await declare(store, "mail", Concurrency(2))
    await add_many(store, 3)
    jobs = await start(store, 2)
    full = await usage(store, "mail")
    await complete(store, jobs[:1])

    assert (full.used, full.allowed, full.opens_at) == (2, 2, NEVER)
    assert (await usage(store, "mail")).used == 1


async def test_usage_of_several_kinds_shows_the_fullest(store):
    await declare(store, "mail", Rate(10, per="1m") & Concurrency(2))
    await add_many(store, 3)
    jobs = await start(store)
    running = await usage(store, "mail")
    await complete(store, jobs)
    idle = await usage(store, "mail")

    assert (running.used, running.allowed) == (1, 2)
    assert (idle.used, idle.allowed) == (1, 10)


async def test_usage_of_unlimited_has_no_maximum(store):
    await declare(store, "mail", Unlimited())

    assert (await usage(store, "mail")).allowed is None


async def test_usage_is_told_for_each_group(store, clock):
    await declare(store, "tenant", Rate(2, per="1m"), by="group", overrides={"big": Rate(9, per="1m")})
    await add_many(store, 3, group="big")
    await add_many(store, 2, group="small")
    await claim(store, 2)

    big, small, new = [await usage(store, "tenant", group) for group in ("big", "small", "new")]

    assert [(each.group, each.used, each.allowed, each.waiting) for each in (big, small, new)] == [
        ("big", 1, 9, 2),
        ("small", 1, 2, 1),
        ("new", 0, 2, 0),
    ]


async def test_usage_shows_the_operators_numbers_until_they_end(store, clock):
    await declare(store, "mail", Rate(2, per="1m"))
    await declare(store, "tenant", Rate(2, per="1m"), by="group")
    for name in ("mail", "tenant"):
        await store.override(Override(limit=name, kind=Rate(7, per="1m")), HOUR)
    before = [(await usage(store, *key)).allowed for key in (("mail",), ("tenant", "acme"), ("tenant",))]

    clock.advance("1h")

    after = [(await usage(store, *key)).allowed for key in (("tenant",), ("tenant", "acme"), ("mail",))]
    assert (before, after) == ([7, 7, 7], [2, 2, 2])


async def test_looking_at_a_limit_charges_nothing(store):
    await declare(store, "mail", Rate(1, per="1m"))
    await add(store, "a")

    for _ in range(5):
        await usage(store, "mail")
        await store.standing("a")

    assert [job.id for job in (await claim(store)).jobs] == ["a"]


async def test_usage_of_a_limit_that_nobody_declared_is_an_error(store):
    with pytest.raises(ConfigError, match="nobody"):
        await usage(store, "nobody")


async def test_a_limit_of_groups_counts_the_jobs_of_all_groups_that_wait_under_it(store):
    await declare(store, "tenant", Rate(8, per="1h"), by="group")
    for group in ("acme", "other", None):
        await add_many(store, 3, group=group)
    before = await usage(store, "tenant")

    await declare(store, "tenant", Rate(9, per="1h"), by="group")
    after = await usage(store, "tenant")
    await claim(store)

    assert (before.waiting, after.waiting) == (6, 6)
    assert ((await usage(store, "tenant")).waiting, (await usage(store, "tenant", "acme")).waiting) == (5, 2)
