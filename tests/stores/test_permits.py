"""Starts that are no jobs: permits of any code, counted under the same keys as jobs."""

from __future__ import annotations

import pytest

from paceline.errors import ConfigError, NeverFits
from paceline.limits import Concurrency, Delay, EvenlySpaced, Rate, Unlimited
from paceline.stores.interface import Override, Target

from .builders import (
    MINUTE,
    SECOND,
    add,
    add_many,
    claim,
    claimed,
    complete,
    declare,
    hold,
    opens_exactly_at,
    start,
    usage,
)


async def granted(store, *targets: Target | str, permit: str = "permit", force: bool = False) -> bool:
    """Ask for a permit; names stand for targets without a group and of cost 1."""
    asked = [Target(target) if isinstance(target, str) else target for target in targets]
    return (await store.acquire(asked, permit, 60 * MINUTE, force)).granted


async def test_a_permit_is_granted_at_the_time_of_the_store(store, clock):
    await declare(store, "api", Concurrency(1))

    grant = await store.acquire([Target("api")], "permit", MINUTE)

    assert (grant.granted, grant.now) == (True, clock.now())
    assert (await usage(store, "api")).used == 1


async def test_a_full_concurrency_grants_nothing_until_a_permit_is_given_back(store):
    await declare(store, "api", Concurrency(2))
    grants = [await granted(store, "api", permit=name) for name in ("a", "b", "c")]

    await store.give_back(["a"])

    assert grants == [True, True, False]
    assert await granted(store, "api", permit="c")
    assert not await granted(store, "api", permit="d")


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (Rate(1, per="1m"), MINUTE),
        (Rate(1, per="1m", guard="1s"), 61 * SECOND),
        (Delay("50ms"), 50_000),
        (EvenlySpaced(3, per="1s"), 333_334),
    ],
    ids=repr,
)
async def test_a_refused_permit_is_granted_exactly_when_the_store_said(store, clock, kind, after):
    await declare(store, "api", kind)
    first = clock.now()
    await granted(store, "api")

    refused = await store.acquire([Target("api")], "next", MINUTE)
    clock.to(first + after - 1)
    before = await granted(store, "api", permit="next")
    clock.to(first + after)

    assert (refused.granted, refused.until) == (False, first + after)
    assert (before, await granted(store, "api", permit="next")) == (False, True)


async def test_unlimited_grants_everything(store):
    await declare(store, "api", Unlimited())

    assert [await granted(store, "api", permit=f"{number}") for number in range(20)] == [True] * 20


async def test_a_refused_permit_is_charged_nowhere(store):
    await declare(store, "api", Rate(2, per="1h") & Concurrency(1))
    await granted(store, "api", permit="a")
    for _ in range(5):
        assert not await granted(store, "api", permit="b")

    await store.give_back(["a"])

    assert await granted(store, "api", permit="b")


async def test_the_end_of_a_permit_gives_nothing_back_to_a_rate(store):
    await declare(store, "api", Rate(1, per="1h"))
    await granted(store, "api", permit="a")

    await store.give_back(["a"])

    assert not await granted(store, "api", permit="b")


async def test_giving_back_twice_frees_one_slot(store):
    await declare(store, "api", Concurrency(2))
    for name in ("a", "b"):
        await granted(store, "api", permit=name)

    await store.give_back(["a", "a"])
    await store.give_back(["a"])

    assert (await usage(store, "api")).used == 1


async def test_unknown_permits_are_ignored(store):
    await declare(store, "api", Concurrency(1))
    await granted(store, "api", permit="a")

    await store.give_back(["nobody", "a"])

    assert (await usage(store, "api")).used == 0


@pytest.mark.parametrize(
    ("kind", "leased"),
    [
        (Concurrency(1), True),
        (Rate(5, per="1s") & Concurrency(1), True),
        (Rate(5, per="1s"), False),
        (Delay("1s"), False),
        (Unlimited(), False),
    ],
    ids=repr,
)
async def test_only_a_permit_that_holds_a_slot_must_be_given_back(store, kind, leased):
    await declare(store, "api", kind)

    grant = await store.acquire([Target("api")], "permit", MINUTE)

    assert (grant.granted, grant.leased) == (True, leased)


async def test_a_permit_that_holds_one_slot_of_several_targets_must_be_given_back(store):
    await declare(store, "api", Rate(5, per="1s"))
    await declare(store, "slots", Concurrency(1))

    grant = await store.acquire([Target("api"), Target("slots")], "permit", MINUTE)

    assert grant.leased is True


# a limit that changes while a permit is refused


OPENINGS = {
    "raised": lambda store: declare(store, "api", Rate(2, per="1h")),
    "overridden": lambda store: store.override(Override(limit="api", kind=Rate(2, per="1h")), None),
    "cleared": lambda store: store.clear("api", None),
    "unlimited": lambda store: declare(store, "api", Unlimited()),
}


@pytest.mark.parametrize("change", OPENINGS)
async def test_a_refused_permit_is_granted_at_once_when_the_limit_opens(store, change):
    await declare(store, "api", Rate(1, per="1h"))
    await granted(store, "api", permit="a")
    assert not await granted(store, "api", permit="b")

    await OPENINGS[change](store)

    assert await granted(store, "api", permit="b")


async def test_a_permit_that_a_hold_refused_is_granted_at_once_when_it_is_released(store):
    await declare(store, "api", Rate(9, per="1h"))
    await hold(store, "api", for_="1h")
    assert not await granted(store, "api")

    await store.release("api", None)

    assert await granted(store, "api")


async def test_a_refused_permit_learns_that_the_limit_is_held_longer(store, clock):
    await declare(store, "api", Rate(1, per="1m"))
    await granted(store, "api", permit="a")
    assert not await granted(store, "api", permit="b")

    await hold(store, "api", for_="1h")

    refused = await store.acquire([Target("api")], "b", MINUTE)
    assert (refused.granted, refused.until) == (False, clock.now() + 60 * MINUTE)


async def test_a_refused_permit_learns_that_the_window_is_longer(store, clock):
    await declare(store, "api", Rate(1, per="1m"))
    await granted(store, "api", permit="a")
    assert not await granted(store, "api", permit="b")

    await declare(store, "api", Rate(1, per="1h"))

    refused = await store.acquire([Target("api")], "b", MINUTE)
    assert (refused.granted, refused.until) == (False, clock.now() + 60 * MINUTE)


async def test_a_refused_permit_learns_that_others_were_forced_in(store, clock):
    await declare(store, "api", Rate(1, per="1m"))
    await granted(store, "api", permit="a")
    clock.advance("10s")
    assert not await granted(store, "api", permit="b")

    await granted(store, "api", permit="c", force=True)

    refused = await store.acquire([Target("api")], "b", MINUTE)
    assert (refused.granted, refused.until) == (False, clock.now() + MINUTE)


# cost


async def test_a_permit_may_cost_more_than_one(store, clock):
    await declare(store, "tokens", Rate(10, per="1m"))
    await granted(store, Target("tokens", cost=8))

    refused = await store.acquire([Target("tokens", cost=3)], "next", MINUTE)

    assert (refused.granted, refused.until) == (False, clock.now() + MINUTE)
    assert await granted(store, Target("tokens", cost=2), permit="small")
    assert (await usage(store, "tokens")).used == 10


async def test_a_permit_that_can_never_be_granted_is_an_error(store):
    await declare(store, "tokens", Rate(10, per="1m"))

    with pytest.raises(NeverFits) as refused:
        await granted(store, Target("tokens", cost=11))

    assert (refused.value.limit, refused.value.cost, refused.value.allowed) == ("tokens", 11, 10)


# force


async def test_a_forced_permit_is_charged_even_when_the_limit_is_full(store, clock):
    await declare(store, "api", Rate(1, per="1m"))
    await granted(store, "api", permit="a")
    clock.advance("10s")

    assert await granted(store, "api", permit="b", force=True)

    assert (await usage(store, "api")).used == 2
    clock.advance("50s")
    assert not await granted(store, "api", permit="c")
    clock.advance("10s")
    assert await granted(store, "api", permit="c")


async def test_a_forced_permit_takes_a_slot_that_must_be_given_back(store):
    await declare(store, "api", Concurrency(1))
    await granted(store, "api", permit="a")
    await granted(store, "api", permit="b", force=True)

    await store.give_back(["a"])

    assert not await granted(store, "api", permit="c")
    await store.give_back(["b"])
    assert await granted(store, "api", permit="c")


async def test_a_forced_permit_passes_a_hold(store):
    await declare(store, "api", Concurrency(1))
    await hold(store, "api", for_="1h")

    assert await granted(store, "api", force=True)


# several targets


async def test_all_targets_are_charged(store):
    await declare(store, "api", Rate(5, per="1h"))
    await declare(store, "tokens", Rate(100, per="1h"))

    assert await granted(store, "api", Target("tokens", cost=30))

    assert ((await usage(store, "api")).used, (await usage(store, "tokens")).used) == (1, 30)


async def test_no_target_is_charged_when_one_refuses(store, clock):
    await declare(store, "open", Rate(5, per="1h"))
    await declare(store, "full", Rate(1, per="1m"))
    await granted(store, "full", permit="a")

    for targets in ([Target("open"), Target("full")], [Target("full"), Target("open")]):
        refused = await store.acquire(targets, "b", MINUTE)
        assert (refused.granted, refused.until) == (False, clock.now() + MINUTE)

    assert (await usage(store, "open")).used == 0


@pytest.mark.parametrize("wrong", [Target("nobody"), Target("small", cost=9)], ids=["unknown", "never fits"])
async def test_no_target_is_charged_when_one_is_wrong(store, wrong):
    await declare(store, "open", Rate(5, per="1h"))
    await declare(store, "small", Rate(2, per="1h"))

    with pytest.raises((ConfigError, NeverFits)):
        await granted(store, "open", wrong)

    assert (await usage(store, "open")).used == 0


async def test_the_latest_of_all_targets_says_when_to_ask_again(store, clock):
    await declare(store, "minute", Rate(1, per="1m"))
    await declare(store, "second", Rate(1, per="1s"))
    await granted(store, "minute", "second", permit="a")
    assert not await granted(store, "second", permit="b")
    assert not await granted(store, "minute", permit="b")

    for targets in ([Target("minute"), Target("second")], [Target("second"), Target("minute")]):
        refused = await store.acquire(targets, "b", MINUTE)
        assert refused.until == clock.now() + MINUTE


async def test_giving_back_frees_all_targets(store):
    await declare(store, "one", Concurrency(1))
    await declare(store, "two", Concurrency(1))
    await granted(store, "one", "two", permit="a")

    await store.give_back(["a"])

    assert await granted(store, "one", permit="b")
    assert await granted(store, "two", permit="c")


# groups


async def test_each_group_grants_on_its_own(store):
    await declare(store, "tenant", Concurrency(1), by="group")

    grants = [await granted(store, Target("tenant", group), permit=f"{place}") for place, group in enumerate("aba")]

    assert grants == [True, True, False]


# permits and jobs


async def test_a_permit_takes_the_slot_of_a_job(store):
    await declare(store, "api", Concurrency(1))
    await add(store, "a")
    await granted(store, "api")
    refused = claimed(await claim(store))

    await store.give_back(["permit"])

    assert (refused, claimed(await claim(store))) == ([], ["a"])


async def test_a_job_takes_the_slot_of_a_permit(store):
    await declare(store, "api", Concurrency(1))
    await add(store, "a")
    jobs = await start(store)
    refused = await granted(store, "api")

    await complete(store, jobs)

    assert (refused, await granted(store, "api")) == (False, True)


async def test_permits_and_jobs_share_a_window(store, clock):
    await declare(store, "api", Rate(3, per="1m"))
    await add_many(store, 5)
    await granted(store, "api")
    clock.advance("10s")
    assert len((await claim(store, 5)).jobs) == 2

    await opens_exactly_at(store, clock, clock.now() + 50 * SECOND)


async def test_a_permit_of_a_group_takes_the_slot_of_its_jobs(store):
    await declare(store, "tenant", Concurrency(1), by="group")
    await add(store, "a", group="acme")
    await add(store, "b", group="modest")
    await granted(store, Target("tenant", "acme"))
    refused = claimed(await claim(store, 5))

    await store.give_back(["permit"])

    assert (refused, claimed(await claim(store, 5))) == (["b"], ["a"])


async def test_permits_are_no_jobs(store):
    await declare(store, "api", Concurrency(5))
    await granted(store, "api")

    assert set((await store.counts("line")).values()) == {0}
    assert await store.starts("line", None) == []


async def test_a_permit_that_is_asked_for_again_under_its_name_holds_one_slot(store, clock):
    await declare(store, "all", Concurrency(2))
    await store.acquire([Target("all")], "permit", 10 * SECOND)
    await store.acquire([Target("all")], "permit", 20 * SECOND)

    assert (await store.usage("all", None)).used == 1
    clock.advance("21s")
    assert (await store.acquire([Target("all")], "other", 10 * SECOND)).granted
    assert (await store.usage("all", None)).used == 1


async def test_a_permit_that_is_asked_for_anew_under_another_limit_holds_only_that_one(store, clock, handle):
    await declare(store, "api", Concurrency(1))
    await declare(store, "mail", Concurrency(1))
    for name in ("api", "mail"):
        await store.acquire([Target(name)], "permit", MINUTE)
    clock.to(clock.now() + 30 * SECOND)
    await store.acquire([Target("api")], "another", MINUTE)

    clock.to(clock.now() + 31 * SECOND)  # the first one's time is over, the other one's is not
    async with handle() as other:
        assert (await claim(other)).jobs == []

    assert [(await usage(store, name)).used for name in ("api", "mail")] == [1, 0]
