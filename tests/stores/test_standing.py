"""Where a job stands: everything that decides when it may start, read in one step."""

from __future__ import annotations

import pytest

from paceline.clock import NEVER
from paceline.errors import JobNotFound
from paceline.job import JobState, Move
from paceline.limits import Concurrency, Delay, Rate, Unlimited
from paceline.limits.explain import explain
from paceline.stores.interface import Override, Target, WorkerRecord

from .builders import MINUTE, a_job_in, add, add_many, declare, hold, opens_exactly_at, start


async def test_a_job_that_nothing_stops_stands_first(store, clock):
    (job,) = await add(store, "a")

    standing = await store.standing("a")

    assert (standing.job, standing.now, standing.paused, standing.known) == (job, clock.now(), [], True)
    assert (standing.keys, standing.ahead, standing.groups) == ([], 0, 1)


async def test_nobody_stands_without_a_job(store):
    with pytest.raises(JobNotFound):
        await store.standing("nobody")


async def test_a_standing_shows_every_limit_that_the_job_meets(store, clock):
    await declare(store, "full", Rate(1, per="1m"), queues=["line"])
    await declare(store, "held", Unlimited(), tasks=["work"])
    await declare(store, "tenant", Rate(10, per="1m"), by="group")
    await declare(store, "not met", Concurrency(1), tasks=["other"])
    await store.acquire([Target("full")], "permit", MINUTE)
    await hold(store, "held", for_="2m", reason="429")
    await add(store, "a", group="acme", cost={"tenant": 4})

    keys = {key.limit: key for key in (await store.standing("a")).keys}

    assert set(keys) == {"full", "held", "tenant"}
    assert (keys["full"].used, keys["full"].allowed, keys["full"].opens_at) == (1, 1, clock.now() + MINUTE)
    assert (keys["held"].hold_until, keys["held"].hold_reason) == (clock.now() + 2 * MINUTE, "429")
    assert (keys["tenant"].group, keys["tenant"].cost, keys["tenant"].used) == ("acme", 4, 0)


async def test_a_standing_tells_when_the_job_s_own_cost_fits(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await store.acquire([Target("tokens", cost=8)], "permit", MINUTE)
    await add(store, "small", cost=2)
    await add(store, "big", cost=3)

    small, big = [(await store.standing(id)).keys[0] for id in ("small", "big")]

    assert (small.opens_at <= clock.now(), big.opens_at) == (True, clock.now() + MINUTE)


@pytest.mark.parametrize("changes", [{}, {"delay": "1h"}, {"group": "acme"}], ids=str)
@pytest.mark.parametrize("kind", [Rate(2, per="1h"), Rate(2, per="1h") & Concurrency(10**9)], ids=repr)
async def test_a_cost_that_no_longer_fits_stands_before_a_limit_that_never_opens(store, kind, changes):
    await add(store, "a", cost=3, **changes)
    await declare(store, "tokens", kind, by="group" if "group" in changes else None)

    standing = await store.standing("a")

    (key,) = standing.keys
    assert (key.opens_at, key.cost, key.never_above) == (NEVER, 3, 2)
    assert standing.earliest is None
    assert "it costs 3, and limit 'tokens'" in explain(standing).text
    assert "never allows more than 2; it fails with NeverFits when a worker claims it" in explain(standing).text
    assert [(each.limit, each.until) for each in explain(standing).blocked_by] == [("tokens", None)]


async def test_a_cost_that_fits_again_has_an_earliest_start_again(store, clock):
    await declare(store, "tokens", Rate(3, per="1h"))
    await add(store, "a", cost=3)
    await store.override(Override(limit="tokens", kind=Rate(1, per="1h")), None)
    lowered = await store.standing("a")
    await store.lift("tokens", None)

    standing = await store.standing("a")

    assert (lowered.earliest, standing.earliest) == (None, clock.now())
    assert standing.keys[0].never_above is None


async def test_a_standing_shows_how_many_of_the_group_go_first(store):
    await add(store, "a", "b", "c", group="acme")
    await add(store, "urgent", group="acme", priority=-1)
    await add_many(store, 5, group="other")
    await add(store, "delayed", group="acme", delay="1h", priority=-5)

    ahead = {id: (await store.standing(id)).ahead for id in ("urgent", "a", "b", "c")}

    assert ahead == {"urgent": 0, "a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("other", [None, "g1"])
@pytest.mark.parametrize("group", [None, "acme"])
async def test_jobs_ahead_are_counted_whatever_else_was_filed_meanwhile(store, group, other):
    await add(store, "first", task="b", group=group)
    await add(store, "promoted", task="b", group=other, delay="1h")
    await store.move(["promoted"], Move.PROMOTE)
    await add(store, "last", task="c", group=group)

    first, last = [(await store.standing(id)).ahead for id in ("first", "last")]

    assert (first, last) == (0, 2 if group == other else 1)


async def test_a_standing_shows_how_many_groups_have_something_waiting(store):
    for group in ("a", "b", "c"):
        await add(store, group, group=group)
    await add(store, "delayed", group="d", delay="1h")

    assert (await store.standing("a")).groups == 3


async def test_a_standing_names_every_pause(store):
    await add(store, "a", task="work", group="acme")
    await store.pause("line", "other", None, True)
    counts = [len((await store.standing("a")).paused)]

    for task, group in ((None, None), ("work", None), (None, "acme")):
        await store.pause("line", task, group, True)
        counts.append(len((await store.standing("a")).paused))

    assert counts == [0, 1, 2, 3]


async def test_a_standing_tells_whether_some_worker_knows_the_task(store):
    await add(store, "a", task="mail")
    nobody = (await store.standing("a")).known
    await store.register(WorkerRecord(id="one", queues=("line",), tasks=frozenset(["bill"])))
    unknown = (await store.standing("a")).known
    await store.register(WorkerRecord(id="two", queues=("line",), tasks=frozenset(["mail"])))

    assert (nobody, unknown, (await store.standing("a")).known) == (True, False, True)


# the earliest start


async def earliest(store, id: str) -> int | None:
    return (await store.standing(id)).earliest


async def test_a_job_that_nothing_stops_can_start_now(store, clock):
    await add(store, "a")

    assert await earliest(store, "a") == clock.now()


async def test_a_delayed_job_can_start_when_it_is_due(store, clock):
    await add(store, "a", delay="1m")

    assert await earliest(store, "a") == clock.now() + MINUTE


async def test_a_job_under_a_hold_can_start_after_it(store, clock):
    await declare(store, "mail", Unlimited())
    await hold(store, "mail", for_="1m")
    await add(store, "a")

    assert await earliest(store, "a") == clock.now() + MINUTE


async def test_a_job_behind_others_can_start_when_they_have_taken_their_turns(store, clock):
    await declare(store, "mail", Rate(2, per="1m") & Delay("1s"))
    ids = await add_many(store, 6)
    await start(store)

    predicted = [await earliest(store, id) for id in ids[1:]]

    actual = []
    for at in predicted:
        actual.append((await opens_exactly_at(store, clock, at)).started_at)
    assert predicted == actual


async def test_a_big_job_can_start_when_its_cost_fits(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await store.acquire([Target("tokens", cost=8)], "permit", MINUTE)
    await add(store, "a", cost=3)

    assert await earliest(store, "a") == clock.now() + MINUTE


async def test_nobody_knows_when_a_slot_is_free(store):
    await declare(store, "mail", Concurrency(1))
    await add(store, "running", "a")
    await start(store)

    assert await earliest(store, "a") is None


async def test_a_slot_whose_lease_is_over_is_free_for_those_who_look(store, clock):
    await declare(store, "mail", Concurrency(1))
    await add(store, "running", "a")
    await start(store, lease="5s")
    clock.advance("5s")

    assert await earliest(store, "a") == clock.now()


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETED])
async def test_a_job_that_does_not_wait_has_no_earliest_start(store, state):
    await a_job_in(store, state)

    assert await earliest(store, "a") is None
